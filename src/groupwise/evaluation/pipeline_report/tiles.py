"""What the pipeline came to, in a few numbers."""

from typing import NamedTuple

from groupwise.evaluation.metrics import NOT_MEASURED, show
from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.stages import GENERAL, tasks
from groupwise.evaluation.pipeline_report.table import OWN, metric
from groupwise.evaluation.pipeline_report.totals import seconds
from groupwise.evaluation.totals import duration

HEADLINES = ("pass_at_1", "format", "language", "helpful")
GENERAL_HEADLINES = ("helpful", "harmless")


class Tile(NamedTuple):
    """One number with its name and a word about it."""

    name: str
    value: str
    detail: str


def tiles(data: PipelineData) -> list[Tile]:
    """From the base model to the last one that was evaluated, and the time it took.

    What the last stage alone is rewarded for is set beside the model that it started from.
    """
    wanted = [(task, key) for task in tasks(data) for key in (GENERAL_HEADLINES if task == GENERAL else HEADLINES)]
    shown = [_change(data, task, key) for task, key in wanted if _with(data, task, key)]
    trained, evaluated = (seconds(data, which) for which in ("seconds", "evaluation_seconds"))
    time = duration(trained + evaluated) if trained + evaluated else NOT_MEASURED
    return [*shown, Tile("time", time, f"{duration(evaluated)} of it evaluation" if evaluated else "")]


def _with(data: PipelineData, task: str, key: str) -> list[Stage]:
    return [stage for stage in data.policies if key in stage.evaluation.get(task, {})]


def _change(data: PipelineData, task: str, key: str) -> Tile:
    """Where the first model stands and where the last one does."""
    one, several = metric(key), sum(bool(_with(data, each, key)) for each in tasks(data)) > 1
    name = f"{one.name}, {task}" if several and (key in OWN or len(tasks(data)) > 2) else one.name
    measured = _with(data, task, key)
    first, last = measured[0], measured[-1]
    if key in OWN and (parent := data.parent(last)) in measured:
        first = parent
    (start, before), (end, after) = (_shown(stage, task, key) for stage in (first, last))
    if first is last:
        return Tile(name, f"{end} {one.unit}", f"{last.name} {after}")
    return Tile(name, f"{start} → {end} {one.unit}", f"{first.name} {before} → {last.name} {after}")


def _shown(stage: Stage, task: str, key: str) -> tuple[str, str]:
    """Value and interval."""
    value, _, interval = show(stage.evaluation[task][key], metric(key), with_unit=False).partition(" ")
    return value, interval
