"""Sudoku on 4×4, 6×6 and 9×9 grids: every row, column and block holds each digit once; one completion fits."""

from collections.abc import Iterator, Sequence
from functools import cache
from math import isqrt
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw, permutation
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig
from groupwise.tasks.logic.grids import EMPTY, Cells, carve, rows_of
from groupwise.types import Problem

MOST_EMPTY = {4: 11, 6: 24, 9: 54}
"""Empty cells by size up to which a puzzle with one completion is found quickly."""


class SudokuConfig(GeneratedConfig):
    """Dials of the sudoku task."""

    size: Literal[4, 6, 9] = 4
    """Digits per row; blocks are 2×2, 2 rows by 3 columns, or 3×3."""
    min_empty: int = Field(default=4, ge=1)
    """Fewest empty cells."""
    max_empty: int = Field(default=8, ge=1)
    """Most empty cells: 11, 24 or 54 by size."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if self.max_empty > MOST_EMPTY[self.size]:
            raise ValueError(
                f"max_empty = {self.max_empty}: with size = {self.size} at most {MOST_EMPTY[self.size]} is allowed"
            )
        if self.min_empty > self.max_empty:
            raise ValueError(f"min_empty = {self.min_empty} is above max_empty; at most {self.max_empty} is allowed")
        return self


class Sudoku(DrawnTask):
    """Grids to complete; the answer is all rows, for example `1234 3412 2143 4321`."""

    name: ClassVar[str] = "sudoku"
    verifier: ClassVar[str] = "sudoku"
    answers_any_question: ClassVar[bool] = False
    Config = SudokuConfig
    config: SudokuConfig

    def draw(self, index: int) -> Candidate:
        return draw_sudoku(Draw("sudoku", self.config.size, index), self.config)


def draw_sudoku(draw: Draw, config: SudokuConfig) -> Candidate:
    """A puzzle with one completion; its content is the puzzle after renaming digits, first row in order."""
    size, digits = config.size, "123456789"[: config.size]
    while True:
        seed = draw.integer(0, 2**50)
        orders = [permutation(size, "sudoku", seed, cell).tolist() for cell in range(size**2)]
        grid = next(completions((EMPTY,) * size**2, size, orders))
        givens = carve(draw, grid, draw.integer(config.min_empty, config.max_empty), lambda c: completions(c, size))
        if givens.count(EMPTY) >= config.min_empty:
            break
    rows = rows_of(givens, digits, size)
    canonical_rows = "/".join(rows_of(givens, [str(grid.index(digit)) for digit in range(size)], size))
    name = "/".join(rows)
    question = "\n".join([_rules(size), *rows, "Answer with all rows from top to bottom, separated by spaces."])
    reference, label = " ".join(rows_of(grid, digits, size)), f"sudoku {size}x{size}, {givens.count(EMPTY)} empty"
    return f"sudoku {canonical_rows}", Problem(f"sudoku/{name}", question, reference, label, data={"givens": rows})


def _rules(size: int) -> str:
    height = isqrt(size)
    return (
        f"Fill in the dots so that every row, every column and every block ({height} rows by {size // height} columns) "
        f"holds each of the digits 1 to {size} once."
    )


def completions(cells: Cells, size: int, orders: Sequence[Sequence[int]] = ()) -> Iterator[Cells]:
    """Every way to fill the empty cells; `orders` says for each cell in which order its digits (from 0) are tried."""
    masks = [0] * (3 * size)  # bit masks of digits by row, column and block
    empty_cells = []
    for cell, digit in enumerate(cells):
        if digit == EMPTY:
            empty_cells.append(cell)
        elif not _toggle(masks, _units(cell, size), digit):
            return
    yield from _fill(list(cells), empty_cells, masks, orders or [range(size)] * size**2, size)


def _fill(
    cells: list[int], empty_cells: list[int], masks: list[int], orders: Sequence[Sequence[int]], size: int
) -> Iterator[Cells]:
    """Backtracking on the empty cell with the fewest choices."""
    if not empty_cells:
        yield tuple(cells)
        return
    units = {cell: _units(cell, size) for cell in empty_cells}
    taken_digits = {cell: masks[row] | masks[column] | masks[block] for cell, (row, column, block) in units.items()}
    cell = max(empty_cells, key=lambda candidate: taken_digits[candidate].bit_count())
    remaining_cells = [candidate for candidate in empty_cells if candidate != cell]
    for digit in orders[cell]:
        if not taken_digits[cell] >> digit & 1:
            _toggle(masks, units[cell], digit)
            cells[cell] = digit
            yield from _fill(cells, remaining_cells, masks, orders, size)
            _toggle(masks, units[cell], digit)


def _toggle(masks: list[int], units: tuple[int, int, int], digit: int) -> bool:
    """Mark a digit as used in a cell's units, or take the mark back; False when one of them had it."""
    is_free = not any(masks[unit] >> digit & 1 for unit in units)
    for unit in units:
        masks[unit] ^= 1 << digit
    return is_free


@cache
def _units(cell: int, size: int) -> tuple[int, int, int]:
    """Row, column and block of a cell, as places in one list of all units."""
    row, column = divmod(cell, size)
    height = isqrt(size)
    width = size // height
    return row, size + column, 2 * size + row // height * height + column // width
