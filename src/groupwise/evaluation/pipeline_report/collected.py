"""What the data stages of a pipeline counted: rows, sources, what was kept, what was dropped and why."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.table import Cell, Column, Line, Table


class Bar(NamedTuple):
    """One number of a data stage's statistics."""

    group: str
    """`sources`, `kept`, `dropped`, ...; empty for a number that stands for itself."""
    name: str
    value: str
    share: float | None
    """Of the largest count of the stage, 0 to 1; None for what is no count."""


def bars(stage: Stage) -> list[Bar]:
    """Everything that a data stage counted; numbers that stand for themselves first."""
    entries = sorted(_entries(stage.statistics), key=lambda entry: bool(entry[0]))
    largest = max((value for *_, value in entries if _is_count(value)), default=0)
    return [
        Bar(group, name, _number(value), value / largest if _is_count(value) and largest else None)
        for group, name, value in entries
    ]


def _entries(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in statistics.items():
        if isinstance(value, Mapping):
            yield from ((key, ": ".join(filter(None, (group, name))), one) for group, name, one in _entries(value))
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
    waiting = [Line(stage.name, "", (), note=stage.state) for stage in data_stages(data) if not stage.statistics]
    note = "What was collected, what was kept, and why the rest was not."
    return Table("Data", note, "stage", columns, (*lines, *waiting), "This pipeline collects no data.")


def data_stages(data: PipelineData) -> list[Stage]:
    """The stages that make data."""
    return [stage for stage in data.stages if stage.makes == "data"]
