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
from groupwise.evaluation.behaviour import patterns_of
from groupwise.evaluation.compare import common, compare
from groupwise.evaluation.evaluate import Evaluation, evaluate
from groupwise.evaluation.held_out import ALARM, HeldOutCheck, look_again, open_second, second_section
from groupwise.evaluation.metrics import MEASURES, by_problem, figures, metric, show
from groupwise.models.config import ModelConfig
from groupwise.models.loading import quiet_transformers
from groupwise.models.policy import load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import Verifier, make_verifier, verifier_config


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
        "checkpoints": {name: figures(found.rows, patterns) for name, found in evaluations.items()},
    }  # fmt: skip
    for name, check in checks.items():
        result["checkpoints"][name]["second"] = check.record()
    if request.against:
        sides = (evaluations[name].rows for name in (request.against, request.checkpoint))
        shares = (by_problem(rows, MEASURES["pass_at_1"]) for rows in sides)
        result["difference"] = compare(*common(*shares))._asdict()
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
    keys = dict.fromkeys(key for one in summaries for key in one)
    # the second verifier has a line of its own
    for key in [key for key in keys if key not in ("by_difficulty", "second")]:
        name = key.replace("_", " ") if key in ("verdict_errors", "no_verdict") else metric(key).name
        table.add_row(name, *(_cell(key, one.get(key)) for one in summaries))
    for label in summaries[0]["by_difficulty"]:
        cells = (_cell("pass_at_1", one["by_difficulty"].get(label)) for one in summaries)
        table.add_row(f"pass@1, {label}", *cells)
    return table


def _cell(key: str, value: Any) -> str:
    if isinstance(value, dict):
        estimate = Estimate(**value)
        return str(estimate) if key.startswith(("pass_at_", "majority_")) else show(estimate, metric(key))
    return "-" if value is None else str(value)
