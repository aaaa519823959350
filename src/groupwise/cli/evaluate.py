"""`groupwise eval`: sample, verify, count, compare."""

import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.algorithms.statistics import Estimate
from groupwise.cli.checkpoints import Context, context_of, refuse_run
from groupwise.cli.second import show_second
from groupwise.errors import ConfigError
from groupwise.evaluation.behaviour import Patterns, patterns_of
from groupwise.evaluation.compare import common, compare
from groupwise.evaluation.metrics import METRICS, show
from groupwise.evaluation.metrics import summary as measured
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.evaluate import Evaluation, evaluate
from groupwise.rollout.held_out import ALARM, HeldOutCheck, look_again, open_second, second_section
from groupwise.rollout.sample_and_score import Actors
from groupwise.runs.rollouts import rollout_rows
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import Verifier, make_verifier, verifier_config

TOLD = ("pass_at_1", "length", "truncated")
"""Metrics that the evaluation states under other names."""


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What the command line asks for."""

    checkpoint: str
    against: str | None
    task: str | None
    split: str | None
    num_problems: int | None
    num_samples: int
    seed: int
    sampling: dict[str, Any]
    overrides: tuple[str, ...]
    second: str | None = None
    """A verifier that judges the correct completions again."""


def run_evaluation(request: EvalRequest, console: Console, as_json: bool) -> None:
    """Evaluate one or two checkpoints and print a table or JSON."""
    quiet_transformers()
    if request.split not in (None, *SPLITS):
        raise ConfigError(f"--split {request.split!r}: allowed are {', '.join(SPLITS)}")
    context = context_of(request.checkpoint, request.task, request.sampling, request.overrides)
    patterns = patterns_of(context.behaviour)
    names = [request.checkpoint, *([request.against] if request.against else [])]
    if request.against:
        refuse_run(request.against)
    split, problems = context.problems(request.split, request.num_problems)
    again = verifier_config(second_section(request.second, context.verifier.model_dump())) if request.second else None
    with open_second(again, context.task, context.verifier) as second:
        with console.status("sampling and verifying") if not as_json else nullcontext():
            evaluations = {name: _evaluate(name, request, context, problems) for name in names}
        checks = _second_looks(request, context, evaluations, second)
    result: dict[str, Any] = {
        "task": context.task.name, "split": split, "problems": len(problems),
        "samples": request.num_samples, "temperature": context.sampling.temperature, "seed": request.seed,
        "checkpoints": {name: summary(found, request.num_samples, patterns) for name, found in evaluations.items()},
    }  # fmt: skip
    for name, check in checks.items():
        result["checkpoints"][name]["second"] = check.record()
    if request.against:
        theirs, ours = evaluations[request.against], evaluations[request.checkpoint]
        result["difference"] = _as_dict(compare(*common(theirs.share_by_problem(), ours.share_by_problem())))
    if as_json:
        print(json.dumps(_standard(result), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        console.print(_table(result))
        for check in checks.values():
            show_second(check, console)
        if request.against:
            gain = Estimate(**result["difference"])
            console.print(
                f"pass@1, paired difference to {request.against}: {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
            )


def _evaluate(path: str, request: EvalRequest, context: Context, problems: Sequence[Problem]) -> Evaluation:
    with make_verifier(context.verifier) as verifier:
        verifier.check(problems, context.task.template)
        policy = load_policy(ModelConfig(path=path))
        actors = Actors.of(policy, context.task.template, verifier)
        draws = Draws(request.seed, Purpose(request.split or "test"))
        return evaluate(actors, problems, request.num_samples, context.sampling, draws)


def _second_looks(
    request: EvalRequest, context: Context, evaluations: dict[str, Evaluation], verifier: Verifier | None
) -> dict[str, HeldOutCheck]:
    """What the second verifier says of every correct completion, by checkpoint; empty where none is asked."""
    if verifier is None or request.second is None:
        return {}
    size = max(len(one.scored) for one in evaluations.values()) * request.num_samples
    most = context.sampling.max_tokens
    look = partial(look_again, name=request.second, verifier=verifier, size=size, alarm=ALARM, max_tokens=most)
    return {name: look(evaluation.scored, seed=request.seed) for name, evaluation in evaluations.items()}


def summary(evaluation: Evaluation, num_samples: int, patterns: Patterns) -> dict[str, Any]:
    """All figures of an evaluation, as JSON values; intervals are 95 %."""
    lengths = [one.num_tokens for scored in evaluation.scored for one in scored.group.completions]
    rows = [{**row, "num_tokens": n} for row, n in zip(rollout_rows(evaluation.scored), lengths, strict=True)]
    found = measured(rows, patterns)
    powers = [2**i for i in range(1, num_samples.bit_length()) if 2**i <= num_samples]
    return {
        "pass@1": _as_dict(evaluation.pass_at_1),
        **{f"pass@{k}": _as_dict(evaluation.pass_at(k)) for k in powers},
        f"maj@{num_samples}": _as_dict(evaluation.majority_correct),
        "mean_length": evaluation.mean_length,
        "truncated": evaluation.truncated,
        "verdict_errors": evaluation.verdict_errors,
        **({"no_verdict": evaluation.no_verdict} if evaluation.no_verdict else {}),
        "behaviour": {key: _as_dict(each) for key, each in found.items() if key in METRICS and key not in TOLD},
        "by_difficulty": {label: _as_dict(estimate) for label, estimate in evaluation.by_difficulty().items()},
    }


def _as_dict(estimate: Estimate) -> dict[str, float]:
    return estimate._asdict()


def _standard(value: Any) -> Any:
    """The value with null for what JSON has no number for: an interval over a single problem has no ends."""
    if isinstance(value, dict):
        return {key: _standard(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(result: dict[str, Any]) -> Table:
    size = f"{result['problems']} problems × {result['samples']} samples"
    title = f"{result['task']}, {result['split']}: {size}, 95 % intervals"
    table = Table(title=title, title_justify="left", min_width=60)
    table.add_column("", overflow="fold")
    for name in result["checkpoints"]:
        table.add_column(name, justify="right", overflow="fold")
    summaries = list(result["checkpoints"].values())
    for key in summaries[0]:
        if key == "by_difficulty":
            for label in summaries[0][key]:
                table.add_row(f"pass@1, {label}", *(_cell(one[key].get(label)) for one in summaries))
        elif key == "behaviour":
            for name in sorted({name for one in summaries for name in one[key]}, key=list(METRICS).index):
                table.add_row(METRICS[name].name, *(_shown(name, one[key].get(name)) for one in summaries))
        elif key != "second":  # it has a line of its own
            table.add_row(key.replace("_", " "), *(_cell(one.get(key)) for one in summaries))
    return table


def _shown(name: str, value: dict[str, float] | None) -> str:
    return show(Estimate(**value), METRICS[name]) if value else "-"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return str(Estimate(**value))
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
