"""Takuzu (binary puzzle): fill a grid with 0 and 1, balanced, never three equal in a row, all lines different."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig
from groupwise.tasks.logic.grids import EMPTY, Cells, carve, rows_of
from groupwise.types import Problem

MOST_EMPTY = {4: 11, 6: 25, 8: 42}
"""Empty cells by size up to which a puzzle with one completion is found quickly."""


class TakuzuConfig(GeneratedConfig):
    """Dials of the takuzu task."""

    size: Literal[4, 6, 8] = 6
    """Cells per row."""
    min_empty: int = Field(default=8, ge=1)
    """Fewest empty cells."""
    max_empty: int = Field(default=16, ge=1)
    """Most empty cells: 11, 25 or 42 by size."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if self.max_empty > MOST_EMPTY[self.size]:
            raise ValueError(
                f"max_empty = {self.max_empty}: with size = {self.size} at most {MOST_EMPTY[self.size]} is allowed"
            )
        if self.min_empty > self.max_empty:
            raise ValueError(f"min_empty = {self.min_empty} is above max_empty; at most {self.max_empty} is allowed")
        return self


class Takuzu(DrawnTask):
    """Grids to complete; the answer is all rows, for example `0110 1001 0101 1010`."""

    name: ClassVar[str] = "takuzu"
    verifier: ClassVar[str] = "takuzu"
    answers_any_question: ClassVar[bool] = False
    Config = TakuzuConfig
    config: TakuzuConfig

    def draw(self, index: int) -> Candidate:
        return draw_takuzu(Draw("takuzu", self.config.size, index), self.config)


def draw_takuzu(draw: Draw, config: TakuzuConfig) -> Candidate:
    """A puzzle with one completion; a puzzle and its exchange of 0 and 1 have the same content."""
    size = config.size
    while True:
        grid = next(_stack([], [draw.shuffled(lines(size))] * size, size))
        givens = carve(draw, grid, draw.integer(config.min_empty, config.max_empty), lambda c: completions(c, size))
        if givens.count(EMPTY) >= config.min_empty:
            break
    rows = rows_of(givens, "01", size)
    content = min("/".join(rows), "/".join(rows_of(givens, "10", size)))
    question = "\n".join([_RULES, *rows, "Answer with all rows from top to bottom, separated by spaces."])
    reference, label = " ".join(rows_of(grid, "01", size)), f"takuzu {size}x{size}, {givens.count(EMPTY)} empty"
    problem = Problem(f"takuzu/{'/'.join(rows)}", question, reference, label, data={"givens": rows})
    return f"takuzu {content}", problem


_RULES = (
    "Fill in the dots with 0 and 1. Every row and every column holds as many 0 as 1 and never three equal digits side "
    "by side; no two rows are equal, and no two columns."
)


@cache
def lines(size: int) -> tuple[Cells, ...]:
    """Every row that is balanced and has no three equal digits side by side."""
    rows = [tuple(number >> bit & 1 for bit in range(size)) for number in range(1 << size)]
    return tuple(row for row in rows if 2 * sum(row) == size and not _has_three(row))


def _has_three(row: Cells) -> bool:
    return any(a == b == c for a, b, c in zip(row, row[1:], row[2:], strict=False))


def completions(cells: Cells, size: int) -> Iterator[Cells]:
    """Every way to fill the empty cells, row by row."""
    yield from _stack([], [_matching_lines(cells[start : start + size]) for start in range(0, size**2, size)], size)


@cache
def _matching_lines(givens: Cells) -> Sequence[Cells]:
    """The lines that agree with the given cells."""
    return [line for line in lines(len(givens)) if all(g in (EMPTY, c) for g, c in zip(givens, line, strict=True))]


def _stack(rows: list[Cells], choices: Sequence[Sequence[Cells]], size: int) -> Iterator[Cells]:
    """Every grid that begins with `rows` and takes each further row from its choices."""
    if len(rows) == size:
        if len(set(zip(*rows, strict=True))) == size:
            yield tuple(cell for line in rows for cell in line)
        return
    for line in choices[len(rows)]:
        if line not in rows and all(_may_begin(column, size) for column in zip(*rows, line, strict=True)):
            yield from _stack([*rows, line], choices, size)


@cache
def _may_begin(column: Cells, size: int) -> bool:
    """Whether a valid column can begin like this; without its last cell it is known that one can."""
    num_ones = sum(column)
    return not _has_three(column[-3:]) and 2 * max(num_ones, len(column) - num_ones) <= size
