"""What the training runs of a pipeline measured on their way."""

from collections.abc import Mapping
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import METRICS, Metric, show
from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.table import NOTHING, Column, Line, Table, text_cell
from groupwise.evaluation.run_data import RunData

ACCURACY = Metric("accuracy", "%", "Held-out pairs whose better completion scores higher.")


def training_table(data: PipelineData) -> Table:
    """What each training run set out from and where it arrived."""
    columns = tuple(map(Column, ("algorithm", "steps", "measured", "at first", "at last", "best")))
    lines = tuple(_trained(stage, stage.run) for stage in data.stages if stage.run)
    note = "As the runs themselves measured it, on held-out problems or pairs of their own; 95 % intervals."
    return Table("Training", note, "stage", columns, lines, "No training has begun.")


def _trained(stage: Stage, run: RunData) -> Line:
    done = run.steps[-1]["step"] + 1 if run.steps else 0
    state = "" if run.finished else ", unfinished"
    cells = (stage.algorithm or NOTHING, f"{done} of {run.num_steps}{state}", *_progress(stage, run))
    return Line(stage.name, "", tuple(map(text_cell, cells)))


def _progress(stage: Stage, run: RunData) -> tuple[str, ...]:
    """What was measured, and its first, last and best value."""
    pairs = held_out(stage)
    if pairs:
        found = [show(Estimate(*line["accuracy"]), ACCURACY) for line in pairs]
        return "accuracy on held-out pairs", found[0], found[-1], NOTHING
    if run.dev:
        dev = {one.step: show(Estimate(*one.line["pass_at_1"]), METRICS["pass_at_1"]) for one in run.dev}
        values = list(dev.values())
        best = NOTHING if run.best_step is None else f"{dev[run.best_step]} after {run.best_step} steps"
        return "pass@1 on dev", values[0], values[-1], best
    losses = [line["loss"] for line in run.steps if "loss" in line]
    if losses:
        return "loss, nats per token", f"{losses[0]:.3f}", f"{losses[-1]:.3f}", NOTHING
    return NOTHING, NOTHING, NOTHING, NOTHING


def held_out(stage: Stage) -> list[Mapping[str, Any]]:
    """Measurements on held-out pairs, in order; one that was done again after a resume counts once."""
    found = {line["step"]: line for line in stage.lines if line.get("kind") == "held_out"}
    return [found[step] for step in sorted(found)]
