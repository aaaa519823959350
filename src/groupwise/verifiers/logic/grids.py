"""Number grids (sudoku, takuzu): any completion that keeps the givens and the rules is correct.

Needs `problem.data["givens"]`, the rows as texts with `.` for an empty cell. The reference answer is used only for the
measure `cells`, the share (0 to 1) of the empty cells filled as there; it earns nothing.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from math import isqrt

from groupwise.types import Outcome, Problem
from groupwise.verifiers.logic.base import ExactVerifier, Measured, UnreadableError, shown

Grid = Sequence[str]
"""Rows of one symbol per cell."""

_BETWEEN = re.compile(r"[\s,;|/\\]+")


class GridVerifier(ExactVerifier):
    """Reads rows of symbols, with or without white space, commas, semicolons, bars and slashes between them."""

    @abstractmethod
    def symbols(self, size: int) -> str:
        """The symbols that a cell may hold."""

    @abstractmethod
    def fault(self, grid: Grid) -> str:
        """The first rule that a full grid breaks; empty when it breaks none."""

    def find(self, problem: Problem, answer: str) -> Measured:
        """Correct when givens and rules are kept."""
        givens: Grid = list(problem.data["givens"])
        grid = read_grid(answer, len(givens), self.symbols(len(givens)))
        fault = _changed_given(grid, givens) or self.fault(grid)
        outcome = Outcome.WRONG if fault else Outcome.CORRECT
        share = _share_right(grid, givens, read_grid(problem.reference, len(givens), self.symbols(len(givens))))
        return Measured(outcome, fault or "it keeps the givens and all rules", " ".join(grid), {"cells": share})


class SudokuVerifier(GridVerifier):
    """Every row, column and block holds each digit once; blocks are 2 high and size/2 wide, or square."""

    def symbols(self, size: int) -> str:
        return "123456789"[:size]

    def fault(self, grid: Grid) -> str:
        size = len(grid)
        height = isqrt(size)
        width = size // height
        blocks = [
            "".join(row[left : left + width] for row in grid[top : top + height])
            for top in range(0, size, height)
            for left in range(0, size, width)
        ]
        units = {"row": grid, "column": columns(grid), "block": blocks}
        return next((f"{name} {number} repeats a digit" for name, lines in units.items()
                     for number, line in enumerate(lines, start=1) if len(set(line)) != size), "")  # fmt: skip


class TakuzuVerifier(GridVerifier):
    """The same number of 0 and 1 in every line, never three equal in a row, no equal rows and no equal columns."""

    def symbols(self, size: int) -> str:
        return "01"

    def fault(self, grid: Grid) -> str:
        for name, lines in {"row": grid, "column": columns(grid)}.items():
            for number, line in enumerate(lines, start=1):
                if "000" in line or "111" in line:
                    return f"{name} {number} has three equal digits side by side"
                if 2 * line.count("1") != len(grid):
                    return f"{name} {number} has {line.count('1')} ones, {len(grid) // 2} are needed"
            if len(set(lines)) != len(grid):
                return f"two {name}s are equal"
        return ""


def columns(grid: Grid) -> Grid:
    """The columns of a grid, from left to right."""
    return ["".join(cells) for cells in zip(*grid, strict=True)]


def read_grid(text: str, size: int, symbols: str) -> Grid:
    """The rows of a full grid; raises UnreadableError."""
    cells = _BETWEEN.sub("", text)
    remainder = cells.strip(symbols)
    if remainder:
        raise UnreadableError(f"{shown(remainder)} is not made of {symbols}")
    if len(cells) != size * size:
        raise UnreadableError(f"{len(cells)} cells are given, {size * size} are needed")
    return [cells[start : start + size] for start in range(0, size * size, size)]


def _changed_given(grid: Grid, givens: Grid) -> str:
    for row, lines in enumerate(zip(grid, givens, strict=True), start=1):
        for column, (symbol, given) in enumerate(zip(*lines, strict=True), start=1):
            if given not in (".", symbol):
                return f"row {row}, column {column} is {symbol}, but {given} is given"
    return ""


def _share_right(grid: Grid, givens: Grid, reference: Grid) -> float:
    hits = [
        symbol == solution
        for symbol, solution, given in zip("".join(grid), "".join(reference), "".join(givens), strict=True)
        if given == "."
    ]
    return sum(hits) / len(hits) if hits else 1.0
