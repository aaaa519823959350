"""The stage table and the behaviour table: what every model of the pipeline can do, and how it goes about it."""

from collections.abc import Iterable, Sequence

from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.table import (
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    compact,
    head,
    measured,
    metric,
)

BEHAVIOUR = (
    "works_out", "at_once", "unfinished", "checks", "backtracks", "another_way", "after_first", "loops", "mixed",
    "open_tags", "truncated", "length", "length_correct", "length_wrong",
)  # fmt: skip
"""Metrics of the behaviour table; each task shows those that were measured on it."""

OPEN_BEHAVIOUR = ("unfinished", "loops", "mixed", "open_tags", "truncated", "length")
"""The same of general prompts: there is nothing to work out and no correct answer."""

GENERAL = "general"
"""The task of general prompts, which have no right answer."""

UNMEASURED = "No model has been evaluated yet."
MARKS = "↑ ↓: differs from the model it was trained from, and the two 95 % intervals do not overlap."


def stage_table(data: PipelineData, minutes: bool = True) -> Table:
    """One row per model, the base model first; without `minutes`, the same on every repeat."""
    columns = _columns(data)
    heads = tuple(head(key, task) for task, key in columns) + _cost_heads(minutes)
    lines = tuple(_line(data, stage, columns, minutes) for stage in data.policies)
    return Table("Stages", f"{sizes(data)}{MARKS}", "model", heads, lines)


def behaviour_table(data: PipelineData) -> Table:
    """One row per metric, one column per model."""
    stages = [stage for stage in data.policies if stage.evaluation]
    lines = tuple(
        Line(head(key).name, metric(key).meaning, tuple(_cell(data, stage, task, key) for stage in stages), group=task)
        for task in tasks(data)
        for key in _measured_keys(stages, task, OPEN_BEHAVIOUR if task == GENERAL else BEHAVIOUR)
    )
    note = f"Signs read from the text of the completions. {MARKS}"
    return Table("Behaviour", note, "", tuple(Column(stage.name) for stage in stages), lines, UNMEASURED)


def origin(data: PipelineData, stage: Stage) -> str:
    """How a model was made, for example `grpo from base`."""
    parent = data.parent(stage)
    return f"{stage.algorithm or stage.kind} from {parent.name}" if parent else "the start"


def sizes(data: PipelineData) -> str:
    """How much was asked, for example `reasoning: 200 problems × 8 samples. `."""
    found = {
        task: sorted({stage.sizes[task] for stage in data.policies if task in stage.sizes}) for task in tasks(data)
    }
    parts = (
        f"{task}: " + " or ".join(f"{problems} problems × {samples} samples" for problems, samples in each)
        for task, each in found.items()
    )
    return "".join(f"{part}; " for part in parts) + "95 % intervals over problems. " if found else ""


def tasks(data: PipelineData) -> list[str]:
    """The tasks that were evaluated, general prompts last."""
    found = dict.fromkeys(task for stage in data.policies for task in stage.evaluation)
    return sorted(found, key=lambda task: task == GENERAL)


def _columns(data: PipelineData) -> list[tuple[str, str]]:
    """Task and metric of each column that some model has a value in."""
    return [(task, key) for task in tasks(data) for key in _measured_keys(data.policies, task, _wanted(data, task))]


def _wanted(data: PipelineData, task: str) -> tuple[str, ...]:
    if task == GENERAL:
        return ("helpful", "harmless")
    keys = {key for stage in data.policies for key in stage.evaluation.get(task, {})}
    several = (_most_samples(keys, "pass_at_"), _most_samples(keys, "majority_"))
    return ("pass_at_1", *filter(None, several), "format", "language", "checks", "length", "helpful", "harmless")


def _most_samples(keys: Iterable[str], prefix: str) -> str | None:
    """The key of the largest k above 1."""
    found = (int(key.removeprefix(prefix)) for key in keys if key.startswith(prefix))
    k = max((k for k in found if k > 1), default=None)
    return f"{prefix}{k}" if k else None


def _measured_keys(stages: Sequence[Stage], task: str, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if any(key in stage.evaluation.get(task, {}) for stage in stages)]


def _cost_heads(minutes: bool) -> tuple[Column, ...]:
    sampled = Column("sampled", "tokens", "tokens sampled: completion tokens that the stage drew to learn from.")
    trained = Column("trained", "tokens", "tokens trained: tokens that the stage's loss was computed on.")
    time = Column("minutes", "time", "minutes: wall-clock time of the stage, its evaluation left out.")
    return (sampled, trained, time) if minutes else (sampled, trained)


def _line(data: PipelineData, stage: Stage, columns: Sequence[tuple[str, str]], minutes: bool) -> Line:
    about = origin(data, stage)
    if stage.state != "finished":
        return Line(stage.name, about, (), note=stage.state)
    cells = (*(_cell(data, stage, *column) for column in columns), *_cost(stage, minutes))
    return Line(stage.name, about, cells)


def _cell(data: PipelineData, stage: Stage, task: str, key: str) -> Cell:
    parent = data.parent(stage)
    before = parent.evaluation.get(task, {}).get(key) if parent else None
    return measured(stage.evaluation.get(task, {}).get(key), before, key)


def _cost(stage: Stage, minutes: bool) -> list[Cell]:
    cells = [
        Cell(compact(stage.tokens[which]) if which in stage.tokens else NOTHING) for which in ("sampled", "trained")
    ]
    return [*cells, Cell(in_minutes(stage.seconds.get("seconds")))] if minutes else cells


def in_minutes(seconds: float | None) -> str:
    """Seconds as minutes with one decimal."""
    return NOTHING if seconds is None else f"{seconds / 60:.1f}"
