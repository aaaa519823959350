"""From finished run directories to numbers by name. Nothing is trained here.

A training has

    before.METRIC   after.METRIC   the test split with the first weights and with the best by dev, means over problems
    first.KEY       last.KEY       means over the first and the last quarter of the steps' lines in metrics.jsonl
    whole.KEY                      over all steps: a mean; `tokens`, `processor_s` in sum; `peak_memory_mb` at most
    watch.paid_wrong               share of paid completions that the second verifier rejects, at the last of dev
    watch.alarm                    share of the run that was done when its alarm first sounded; 1 where it never did

and an evaluation of its own `NAME.METRIC`; of a mixture also `NAME.FAMILY.pass_at_1`, and
`NAME.without.FAMILY.pass_at_1` over the problems of all other families. A pipeline has `STAGE.TASK.METRIC`
and what its stages' facts say besides, `STAGE.statistics.KEY`; names within are joined by
dots. What its trainings have is `STAGE.run.KEY`.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.config import as_overrides
from groupwise.errors import DataError
from groupwise.evaluation.measure import evaluate
from groupwise.evaluation.metrics import by_family, estimate, summary
from groupwise.pipeline.directory import PipelineDirectory
from groupwise.runs.atomic import translated_disk_errors, write_file
from groupwise.runs.records import Evaluation, Records
from groupwise.runs.row import Row
from groupwise.types import FAMILY_END
from groupwise_lab.claims.arms import ArmRun, evaluation_tables
from groupwise_lab.claims.config import EvaluationConfig

SUMS = {"tokens": "sampled_tokens", "processor_s": "processor_s"}
MEANS = ("reward", "correct", "signal", "entropy", "length", "length_correct", "length_wrong", "truncated", "grad_norm",
         "clipped", "kl")  # fmt: skip
DIGITS = 6


def training_metrics(path: Path) -> dict[str, float]:
    """Return the metrics of a finished training.

    Raises:
        DataError: it is not finished.
    """
    run = Records.open(path).intact()
    if not run.finished:
        raise DataError(f"{path} is not finished: the same command goes on with it")
    sides = {"before": run.test_before, "after": run.test_after}
    found = {f"{side}.{key}": value for side, data in sides.items() if data for key, value in _of_rows(data.rows)}
    return {**found, **dict(_of_steps(run)), **dict(_of_watch(run.dev, run))}


def _of_rows(rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
    for key, mean in summary(rows).items():
        yield key, round(mean.value, DIGITS)


def _of_steps(run: Records) -> Iterator[tuple[str, float]]:
    steps = run.metrics()
    quarter = max(1, len(steps) // 4)
    parts = {"first": steps[:quarter], "last": steps[-quarter:], "whole": steps}
    for part, lines in parts.items():
        for key in MEANS:
            values = [line[key] for line in lines if line.get(key) is not None]
            if values:
                yield f"{part}.{key}", round(float(np.mean(values)), DIGITS)
    yield "whole.steps", len(steps)
    for name, key in SUMS.items():
        if all(key in line for line in steps):
            yield f"whole.{name}", round(float(sum(line[key] for line in steps)), 3)
    if all("peak_memory_mb" in line for line in steps) and steps:
        yield "whole.peak_memory_mb", round(max(float(line["peak_memory_mb"]) for line in steps), 1)


def _of_watch(dev: Sequence[Evaluation], run: Records) -> Iterator[tuple[str, float]]:
    checks = [(evaluation.step, evaluation.line["second"]) for evaluation in dev if evaluation.line.get("second")]
    if not checks:
        return
    last = checks[-1][1]
    if last["share"] is not None:
        yield "watch.paid_wrong", round(float(last["share"][0]), DIGITS)
    alarms = [step for step, check in checks if check["alarm"]]
    yield "watch.alarm", round(alarms[0] / max(1, len(run.metrics())), DIGITS) if alarms else 1.0


def evaluation_metrics(run: ArmRun, place: Path, name: str, evaluation: EvaluationConfig) -> dict[str, float]:
    """Measure the model that an arm left in a place once more, or read what was measured of it before."""
    kept = run.home / "evaluations" / f"{name}.json"
    if kept.exists():
        found: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    measurement = evaluate(
        _model(run, place), task=evaluation.task or None, split="test", problems=evaluation.num_problems,
        samples=evaluation.num_samples, seed=run.seed, max_tokens=evaluation.max_tokens or None,
        changes=as_overrides(evaluation_tables(evaluation, run.folder)),
    )  # fmt: skip
    rows = measurement.rows
    found = {f"{name}.{key}": value for key, value in (*_of_rows(rows), *_of_families(rows))}
    with translated_disk_errors(kept):
        kept.parent.mkdir(parents=True, exist_ok=True)
    write_file(kept, json.dumps(found).encode())
    return found


def _model(run: ArmRun, place: Path) -> Path | str:
    """The arm's model: the best by dev, or the last where nothing was measured on dev."""
    if run.arm.kind == "model":
        return run.arm.path
    checkpoints = place / "checkpoints"
    best = checkpoints / "best"
    return best if best.exists() else max(checkpoints.glob("step-*"))


def _of_families(rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
    families = by_family(rows)
    for family, solved in families.items() if len(families) > 1 else ():
        yield f"{family}.pass_at_1", round(solved.value, DIGITS)
        others = [row for row in rows if row.difficulty.partition(FAMILY_END)[0] != family]
        yield f"without.{family}.pass_at_1", round(estimate("pass_at_1", others).value, DIGITS)


def pipeline_metrics(path: Path, wanted: Iterable[str]) -> dict[str, float]:
    """Those numbers of a finished pipeline that are asked for.

    Raises:
        DataError: a stage is not there, or does not say what is asked for; says what it has.
    """
    found = {}
    for name in wanted:
        stage, _, rest = name.partition(".")
        facts = PipelineDirectory(path).stage(stage).facts
        if facts is None:
            raise DataError(f"{path} has no finished stage {stage!r}, of which {name!r} is wanted")
        numbers = _of_stage(PipelineDirectory(path).stage(stage).run.path, facts, rest)
        if rest not in numbers:
            raise DataError(f"stage {stage!r} of {path} says nothing of {rest!r}; it has {', '.join(sorted(numbers))}")
        found[name] = round(numbers[rest], DIGITS)
    return found


def _of_stage(run: Path, facts: Mapping[str, Any], wanted: str) -> dict[str, float]:
    if wanted.startswith("run."):
        return {f"run.{key}": value for key, value in training_metrics(run).items()}
    told = {key: facts[key] for key in ("statistics", "tokens") if key in facts}
    return dict(_numbers({**(facts.get("evaluation") or {}), **told}, ""))


def _numbers(value: Any, prefix: str) -> Iterator[tuple[str, float]]:
    """All numbers in nested tables by dotted names; of [value, low, high] the value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and len(value) == 3:
        yield from _numbers(value[0], prefix)
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield prefix, float(value)
