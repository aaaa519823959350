"""`groupwise eval`: sample, verify, count, compare."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.algorithms.statistics import Estimate
from groupwise.cli.checkpoints import Context, context_of
from groupwise.errors import ConfigError
from groupwise.evaluation.compare import common, compare
from groupwise.models.policy import ModelConfig, load_policy, quiet_transformers
from groupwise.rollout.evaluate import Evaluation, evaluate
from groupwise.types import SPLITS
from groupwise.verifiers import make_verifier


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What the command line asks for."""

    checkpoint: str
    against: str | None
    task: str | None
    split: str
    num_problems: int
    num_samples: int
    seed: int
    sampling: dict[str, Any]
    overrides: tuple[str, ...]


def run_evaluation(request: EvalRequest, console: Console, as_json: bool) -> None:
    """Evaluate one or two checkpoints and print a table or JSON."""
    quiet_transformers()
    if request.split not in SPLITS:
        raise ConfigError(f"--split {request.split!r}: allowed are {', '.join(SPLITS)}")
    context = context_of(request.checkpoint, request.task, request.sampling, request.overrides)
    names = [request.checkpoint, *([request.against] if request.against else [])]
    with console.status("sampling and verifying") if not as_json else nullcontext():
        evaluations = {name: _evaluate(name, request, context) for name in names}
    result: dict[str, Any] = {
        "task": context.task.name, "split": request.split, "problems": len(evaluations[request.checkpoint].scored),
        "samples": request.num_samples, "temperature": context.sampling.temperature, "seed": request.seed,
        "checkpoints": {name: summary(evaluation, request.num_samples) for name, evaluation in evaluations.items()},
    }  # fmt: skip
    if request.against:
        theirs, ours = evaluations[request.against], evaluations[request.checkpoint]
        result["difference"] = _as_dict(compare(*common(theirs.share_by_problem(), ours.share_by_problem())))
    if as_json:
        print(json.dumps(result, indent=1, ensure_ascii=False))
    else:
        console.print(_table(result))
        if request.against:
            gain = Estimate(**result["difference"])
            console.print(
                f"pass@1, paired difference to {request.against}: {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
            )


def _evaluate(path: str, request: EvalRequest, context: Context) -> Evaluation:
    policy = load_policy(ModelConfig(path=path))
    problems = context.task.problems(request.split)[: request.num_problems]  # type: ignore[arg-type]
    if not problems:
        raise ConfigError(f"task {context.task.name} has no {request.split} problems")
    with make_verifier(context.task.verifier, context.verifier) as verifier:
        return evaluate(
            policy, context.task.template, problems, verifier, context.sampling,
            num_samples=request.num_samples, seed=request.seed, purpose=request.split,
        )  # fmt: skip


def summary(evaluation: Evaluation, num_samples: int) -> dict[str, Any]:
    """All figures of an evaluation, as JSON values; intervals are 95 %."""
    powers = [2**i for i in range(1, num_samples.bit_length()) if 2**i <= num_samples]
    return {
        "pass@1": _as_dict(evaluation.pass_at_1),
        **{f"pass@{k}": _as_dict(evaluation.pass_at(k)) for k in powers},
        f"maj@{num_samples}": _as_dict(evaluation.majority_correct),
        "mean_length": evaluation.mean_length,
        "truncated": evaluation.truncated,
        "verdict_errors": evaluation.verdict_errors,
        "by_difficulty": {label: _as_dict(estimate) for label, estimate in evaluation.by_difficulty().items()},
    }


def _as_dict(estimate: Estimate) -> dict[str, float]:
    return estimate._asdict()


def _table(result: dict[str, Any]) -> Table:
    size = f"{result['problems']} problems × {result['samples']} samples"
    title = f"{result['task']}, {result['split']}: {size}, 95 % intervals"
    table = Table(title=title, title_justify="left", min_width=60)
    table.add_column("")
    for name in result["checkpoints"]:
        table.add_column(name, justify="right")
    summaries = list(result["checkpoints"].values())
    for key in summaries[0]:
        if key == "by_difficulty":
            for label in summaries[0][key]:
                table.add_row(f"pass@1, {label}", *(_cell(one[key].get(label)) for one in summaries))
        else:
            table.add_row(key.replace("_", " "), *(_cell(one[key]) for one in summaries))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return str(Estimate(**value))
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
