"""What the grid puzzles share: cells are taken out of a full grid as long as one completion remains."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from groupwise.randomness import Draw, permutation

Cells = tuple[int, ...]
"""A grid's cells, row by row."""
EMPTY = -1
"""An empty cell."""


def carve(draw: Draw, grid: Cells, num_empty: int, solve: Callable[[Cells], Iterator[Cells]]) -> Cells:
    """Empty up to `num_empty` cells in random order; one that lets a second completion in is kept."""
    cells = grid
    for index in permutation(len(grid), "carve", draw.integer(0, 2**50)).tolist():
        if cells.count(EMPTY) == num_empty:
            break
        candidate = (*cells[:index], EMPTY, *cells[index + 1 :])
        if len(list(islice(solve(candidate), 2))) == 1:
            cells = candidate
    return cells


def rows_of(cells: Cells, symbols: Sequence[str], size: int) -> list[str]:
    """The grid as texts, `.` for an empty cell."""
    text = "".join("." if cell == EMPTY else symbols[cell] for cell in cells)
    return [text[start : start + size] for start in range(0, len(text), size)]
