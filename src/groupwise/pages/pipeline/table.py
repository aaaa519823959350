"""A table of a report as plain data, which the page, the Markdown file and the command line each write differently."""

import math
import re
from itertools import groupby
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import metric, show

NOTHING = "–"
"""Stands where nothing was measured."""
HIGHER, LOWER = "↑", "↓"


class Cell(NamedTuple):
    """One value; `str` is all of it."""

    value: str
    interval: str = ""
    """95 %, for example `[93.7, 97.1]`."""
    mark: str = ""
    """`↑` or `↓` where it differs from the parent's and the intervals do not overlap."""

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
    """Head of the column of names."""
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    empty: str = ""
    """What to say where there is no line."""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Groups of columns and how many each has; empty where no column has a group."""
        groups = [(name, len(list(columns))) for name, columns in groupby(self.columns, lambda column: column.group)]
        return groups if any(name for name, _ in groups) else []

    @property
    def starts(self) -> list[bool]:
        """Whether a group begins with the column; there is more room before it."""
        groups = [column.group for column in self.columns]
        return [bool(group) and group != previous for group, previous in zip(groups, ["", *groups], strict=False)]

    @property
    def parts(self) -> list[tuple[str, list[Line]]]:
        """The lines by their group."""
        return [(group, list(lines)) for group, lines in groupby(self.lines, lambda line: line.group)]

    @property
    def meanings(self) -> list[str]:
        """What the columns mean, where they say so."""
        return [column.meaning for column in self.columns if column.meaning]


def head(key: str, group: str = "") -> Column:
    """Column of a metric, its unit in the head."""
    quantity = metric(key)
    name = quantity.name if quantity.name.startswith(quantity.unit) else f"{quantity.name}, {quantity.unit}"
    return Column(name, group, f"{quantity.name}: {quantity.meaning}")


def estimate_cell(estimate: Estimate | None, parent: Estimate | None, key: str) -> Cell:
    """A mean with its interval, marked where it differs from the parent's."""
    if estimate is None or math.isnan(estimate.value):
        return Cell(NOTHING)
    value, _, interval = show(estimate, metric(key), with_unit=False).partition(" ")
    return Cell(value, interval, mark(estimate, parent))


def mark(estimate: Estimate, parent: Estimate | None) -> str:
    """A change is marked only where the two intervals have nothing in common.

    >>> mark(Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6)), mark(Estimate(0.5, 0.4, 0.6), Estimate(0.6, 0.5, 0.7))
    ('↑', '')
    """
    if parent is None:
        return ""
    return HIGHER if estimate.low > parent.high else LOWER if estimate.high < parent.low else ""


def text_cell(text: str) -> Cell:
    """A cell made of a text that may end in an interval."""
    match = re.fullmatch(r"(.*) (\[[-+.\d, ]+\])(.*)", text, re.DOTALL)
    return Cell(match[1] + match[3], match[2]) if match else Cell(text)


def compact(count: int) -> str:
    """A large count in three digits.

    >>> compact(812), compact(53_120), compact(1_243_520)
    ('812', '53.1 k', '1.24 M')
    """
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:#.3g}".rstrip(".") + f" {unit}"
    return str(count)
