"""Tables of facts as plain data, which the pages, their version without scripts and Markdown each write."""

import math
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple, Self

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import metric, show
from groupwise.runs.progress import span

NOTHING = "–"
HIGHER, LOWER = "↑", "↓"


class Tile(NamedTuple):
    """One number at the head of a page."""

    name: str
    value: str
    detail: str = ""


class Cell(NamedTuple):
    """One value; `str` is all of it."""

    value: str
    interval: str = ""
    mark: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.value, self.mark, self.interval) if part)


class Column(NamedTuple):
    """The head of a column."""

    name: str
    group: str = ""
    meaning: str = ""


class Line(NamedTuple):
    """One row: a name with a word about it, and a cell for each column, or a note in place of all cells."""

    name: str
    about: str
    cells: tuple[Cell, ...]
    note: str = ""
    group: str = ""


class Table(NamedTuple):
    """A table with its title and a sentence on how to read it."""

    title: str
    note: str
    first: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    empty: str = ""

    @classmethod
    def of(
        cls, title: str, note: str, first: str, names: Iterable[str], lines: Iterable[Line], empty: str = ""
    ) -> Self:
        """Make a table whose columns are named and nothing else."""
        return cls(title, note, first, tuple(map(Column, names)), tuple(lines), empty)

    @property
    def groups(self) -> list[tuple[str, int]]:
        groups = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda column: column.group)]
        return groups if any(name for name, _ in groups) else []

    def facts(self) -> dict[str, Any]:
        lines = [{**line._asdict(), "cells": [cell._asdict() for cell in line.cells]} for line in self.lines]
        return {
            "title": self.title, "note": self.note, "first": self.first, "empty": self.empty, "groups": self.groups,
            "columns": [column.name for column in self.columns], "lines": lines,
            "meanings": [column.meaning for column in self.columns if column.meaning],
        }  # fmt: skip


def head(key: str, group: str = "") -> Column:
    """Column of a metric, its unit in the head."""
    quantity = metric(key)
    has_unit = quantity.unit and not quantity.name.startswith(quantity.unit)
    name = f"{quantity.name}, {quantity.unit}" if has_unit else quantity.name
    return Column(name, group, f"{quantity.name}: {quantity.meaning}")


def estimate_cell(estimate: Estimate | None, parent: Estimate | None, key: str) -> Cell:
    """A mean with its interval, marked where it differs from the parent's."""
    if estimate is None or math.isnan(estimate.value):
        return Cell(NOTHING)
    value, _, interval = show(estimate, metric(key), with_unit=False).partition(" ")
    return Cell(value, interval, mark(estimate, parent))


def mark(estimate: Estimate, parent: Estimate | None) -> str:
    """An arrow where the two intervals have nothing in common, else an empty text.

    >>> mark(Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6)), mark(Estimate(0.5, 0.4, 0.6), Estimate(0.6, 0.5, 0.7))
    ('↑', '')
    """
    if parent is None:
        return ""
    return HIGHER if estimate.low > parent.high else LOWER if estimate.high < parent.low else ""


def text_cell(text: str) -> Cell:
    """A cell made of a text that may end in an interval."""
    match = re.fullmatch(r"(.*) (\[[-−+.\d, ]+\])(.*)", text, re.DOTALL)
    return Cell(match[1] + match[3], match[2]) if match else Cell(text)


def compact(count: int) -> str:
    """A count in three digits.

    >>> compact(812), compact(53_120), compact(1_243_520)
    ('812', '53.1 k', '1.24 M')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:#.3g}".rstrip(".") + f" {unit}"
    return str(count)


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(59.4), duration(119.7), duration(3725)
    ('59.4 s', '2 min 00 s', '1 h 02 min')
    """
    return f"{seconds:.1f} s" if seconds < 59.5 else span(seconds)
