"""The tables of a pipeline: what every model can do and how it goes about it, what was collected, what it all cost."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groupwise.evaluation.metrics import NOT_MEASURED, metric, show
from groupwise.pages.pipeline.data import BASE, PipelineData, Stage
from groupwise.pages.pipeline.table import NOTHING, Cell, Column, Line, Table, compact, estimate_cell, head
from groupwise.pages.words import Tile, duration

KINDS = {"model": "model", "reward_model": "reward model", "data": "data set"}

BEHAVIOUR = (
    "works_out", "at_once", "unfinished", "checks", "backtracks", "another_way", "after_first", "loops", "mixed",
    "open_tags", "truncated", "length", "length_correct", "length_wrong",
)  # fmt: skip
"""Metrics of the behaviour table; each task shows those that were measured on it."""

OPEN_BEHAVIOUR = ("unfinished", "loops", "mixed", "open_tags", "truncated", "length")
"""The same for general prompts: there is nothing to work out and no correct answer."""

TILES, OPEN_TILES = ("pass_at_1", "format", "language", "helpful"), ("helpful", "harmless")
"""Metrics of the headlines, and those for general prompts."""

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
        for key in _measured_keys(stages, task, OPEN_BEHAVIOUR if task in data.open_ended else BEHAVIOUR)
    )
    note = f"Signs read from the text of the completions. {MARKS}"
    return Table("Behaviour", note, "", tuple(Column(stage.name) for stage in stages), lines, UNMEASURED)


def origin(data: PipelineData, stage: Stage) -> str:
    """How a model was made, for example `grpo from base`."""
    parent = data.parent(stage)
    return f"{stage.algorithm or stage.kind} from {parent.name}" if parent else "the start"


def sizes(data: PipelineData) -> str:
    """How much was asked, for example `reasoning: 200 problems × 8 samples. `."""
    counts = {
        task: sorted({stage.sizes[task] for stage in data.policies if task in stage.sizes}) for task in tasks(data)
    }
    parts = (
        f"{task}: " + " or ".join(f"{problems} problems × {samples} samples" for problems, samples in pairs)
        for task, pairs in counts.items()
    )
    return "".join(f"{part}; " for part in parts) + "95 % intervals over problems. " if counts else ""


def tasks(data: PipelineData) -> list[str]:
    """The tasks that were evaluated, general prompts last."""
    names = dict.fromkeys(task for stage in data.policies for task in stage.evaluation)
    return sorted(names, key=lambda task: task in data.open_ended)


def _columns(data: PipelineData) -> list[tuple[str, str]]:
    """Task and metric of each column that some model has a value in."""
    return [
        (task, key) for task in tasks(data) for key in _measured_keys(data.policies, task, _metric_keys(data, task))
    ]


def _metric_keys(data: PipelineData, task: str) -> tuple[str, ...]:
    if task in data.open_ended:
        return OPEN_TILES
    keys = {key for stage in data.policies for key in stage.evaluation.get(task, {})}
    largest = (_most_samples(keys, "pass_at_"), _most_samples(keys, "majority_"))
    behaviour = ("format", "language", "checks", "length", "calls", "helpful", "harmless")
    return ("pass_at_1", *filter(None, largest), *behaviour)


def _most_samples(keys: Iterable[str], prefix: str) -> str | None:
    """The key of the largest k above 1."""
    numbers = (int(key.removeprefix(prefix)) for key in keys if key.startswith(prefix))
    k = max((k for k in numbers if k > 1), default=None)
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
    return estimate_cell(stage.evaluation.get(task, {}).get(key), before, key)


def _cost(stage: Stage, minutes: bool) -> list[Cell]:
    cells = [Cell(compact(stage.tokens[kind]) if kind in stage.tokens else NOTHING) for kind in ("sampled", "trained")]
    return [*cells, Cell(in_minutes(stage.seconds.get("seconds")))] if minutes else cells


def in_minutes(seconds: float | None) -> str:
    """Seconds as minutes with one decimal."""
    return NOTHING if seconds is None else f"{seconds / 60:.1f}"


def cost_table(data: PipelineData) -> Table:
    """Tokens and wall-clock time of every stage; the one table that differs between two runs of the same recipe."""
    columns = tuple(map(Column, ("tokens sampled", "tokens trained", "minutes", "minutes of evaluation")))
    lines = tuple(_cost_line(stage) for stage in data.stages)
    tokens = (f"{sum(stage.tokens.get(kind, 0) for stage in data.stages):,}" for kind in ("sampled", "trained"))
    minutes = (in_minutes(seconds(data, part)) for part in ("seconds", "evaluation_seconds"))
    total = Line("all stages", "", tuple(map(Cell, (*tokens, *minutes))))
    return Table("Cost", "Wall-clock minutes; those of the evaluation come on top.", "stage", columns, (*lines, total))


def _cost_line(stage: Stage) -> Line:
    if stage.state != "finished":
        return Line(stage.name, "", (), note=stage.state)
    tokens = (f"{stage.tokens[kind]:,}" if kind in stage.tokens else NOTHING for kind in ("sampled", "trained"))
    minutes = (in_minutes(stage.seconds.get(part)) for part in ("seconds", "evaluation_seconds"))
    return Line(stage.name, "", tuple(map(Cell, (*tokens, *minutes))))


def seconds(data: PipelineData, part: str) -> float:
    """Seconds of all stages; `part` is `seconds` or `evaluation_seconds`."""
    return sum(stage.seconds.get(part, 0.0) for stage in data.stages)


def lineage_table(data: PipelineData) -> Table:
    """What came from what, with the hashes that prove it."""
    columns = tuple(map(Column, ("made by", "from", "state", "output", "fingerprint", "hash")))
    note = "The fingerprint is that of a stage's settings, inputs and code; the hash is that of what it made."
    return Table("Lineage", note, "stage", columns, tuple(_lineage(stage) for stage in data.stages))


def _lineage(stage: Stage) -> Line:
    made_by, made_from = stage.algorithm or stage.kind, ", ".join(stage.inputs)
    texts = (made_by, made_from, stage.state, stage.output, stage.fingerprint, stage.output_hash)
    return Line(stage.name, stage.makes, tuple(Cell(text or NOTHING) for text in texts))


def description(data: PipelineData) -> str:
    """The pipeline in one sentence."""
    stages = [stage for stage in data.stages if stage.name != BASE]
    counts = Counter(stage.makes for stage in stages)
    parts = [f"{counts[kind]} {name}{'s' * (counts[kind] > 1)}" for kind, name in KINDS.items() if counts[kind]]
    num_finished = sum(stage.state == "finished" for stage in stages)
    state = "all finished" if num_finished == len(stages) else f"{num_finished} finished so far"
    last = data.policies[-1]
    number = f"{len(stages)} stage{'s' * (len(stages) != 1)}"
    return f"{number}, {state}: {', '.join(parts)}. It ends with {last.name}, {origin(data, last)}."


class Bar(NamedTuple):
    """One number of a data stage's statistics."""

    group: str
    """`sources`, `kept`, `dropped`, ...; empty for a number without a group."""
    name: str
    value: str
    share: float | None
    """Of the largest count of the stage, 0 to 1; None for what is no count."""


def bars(stage: Stage) -> list[Bar]:
    """Everything that a data stage counted; numbers without a group first."""
    entries = sorted(_entries(stage.statistics), key=lambda entry: bool(entry[0]))
    largest = max((value for *_, value in entries if _is_count(value)), default=0)
    return [
        Bar(group, name, _number(value), value / largest if _is_count(value) and largest else None)
        for group, name, value in entries
    ]


def _entries(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in statistics.items():
        if isinstance(value, Mapping):
            yield from ((key, ": ".join(filter(None, (group, name))), inner) for group, name, inner in _entries(value))
        else:
            yield "", key, value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if _is_count(value):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def data_table(data: PipelineData) -> Table:
    """Every count of every data stage, one a row."""
    columns = (Column("what"), Column("count"))
    lines = [
        Line(stage.name, "", (Cell(" ".join(filter(None, (bar.group, bar.name)))), Cell(bar.value)))
        for stage in data_stages(data)
        for bar in bars(stage)
    ]
    placeholders = [Line(stage.name, "", (), note=stage.state) for stage in data_stages(data) if not stage.statistics]
    note = "What was collected, what was kept, and why the rest was not."
    return Table("Data", note, "stage", columns, (*lines, *placeholders), "This pipeline collects no data.")


def data_stages(data: PipelineData) -> list[Stage]:
    """The stages that make data."""
    return [stage for stage in data.stages if stage.makes == "data"]


def tiles(data: PipelineData) -> list[Tile]:
    """From the base model to the last one that was evaluated, and the time it took.

    What the last stage alone is rewarded for is compared with the model that it started from.
    """
    pairs = [(task, key) for task in tasks(data) for key in (OPEN_TILES if task in data.open_ended else TILES)]
    changes = [_change(data, task, key) for task, key in pairs if _measured_stages(data, task, key)]
    training, evaluation = (seconds(data, part) for part in ("seconds", "evaluation_seconds"))
    time = duration(training + evaluation) if training + evaluation else NOT_MEASURED
    return [*changes, Tile("time", time, f"{duration(evaluation)} of it evaluation" if evaluation else "")]


def _measured_stages(data: PipelineData, task: str, key: str) -> list[Stage]:
    return [stage for stage in data.policies if key in stage.evaluation.get(task, {})]


def _change(data: PipelineData, task: str, key: str) -> Tile:
    """Where the first model stands and where the last one does."""
    quantity, has_several = (
        metric(key),
        sum(bool(_measured_stages(data, other_task, key)) for other_task in tasks(data)) > 1,
    )
    name = f"{quantity.name}, {task}" if has_several and (key in OPEN_TILES or len(tasks(data)) > 2) else quantity.name
    stages = _measured_stages(data, task, key)
    first, last = stages[0], stages[-1]
    if key in OPEN_TILES and (parent := data.parent(last)) in stages:
        first = parent
    (start, start_interval), (end, end_interval) = (_value_and_interval(stage, task, key) for stage in (first, last))
    if first is last:
        return Tile(name, f"{end} {quantity.unit}", f"{last.name} {end_interval}")
    return Tile(name, f"{start} → {end} {quantity.unit}", f"{first.name} {start_interval} → {last.name} {end_interval}")


def _value_and_interval(stage: Stage, task: str, key: str) -> tuple[str, str]:
    """Value and interval."""
    value, _, interval = show(stage.evaluation[task][key], metric(key), with_unit=False).partition(" ")
    return value, interval
