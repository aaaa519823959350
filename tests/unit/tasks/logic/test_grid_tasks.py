"""Sudoku and takuzu: exactly one completion, by a naive search that knows nothing of the program's."""

from collections.abc import Callable, Iterator

import pytest

from groupwise.tasks import make_task
from groupwise.tasks.logic.grids import EMPTY
from groupwise.tasks.logic.sudoku import completions
from groupwise.tasks.logic.takuzu import completions as takuzu_completions
from groupwise.tasks.logic.takuzu import lines

Rows = list[str]


def sudoku_allows(rows: Rows, row: int, column: int) -> bool:
    size, symbol = len(rows), rows[row][column]
    height = {4: 2, 6: 2, 9: 3}[size]
    width = size // height
    return not any(
        rows[r][c] == symbol and (r, c) != (row, column)
        for r in range(size)
        for c in range(size)
        if r == row or c == column or (r // height, c // width) == (row // height, column // width)
    )


def takuzu_allows(rows: Rows, row: int, column: int) -> bool:
    across, down = rows[row], "".join(each[column] for each in rows)
    for line in (across, down):
        if "000" in line or "111" in line or max(line.count("0"), line.count("1")) > len(rows) // 2:
            return False
    full = [each for each in rows if "." not in each]
    columns = ["".join(cells) for cells in zip(*rows, strict=True) if "." not in cells]
    return len(set(full)) == len(full) and len(set(columns)) == len(columns)


def naive(rows: Rows, symbols: str, allows: Callable[[Rows, int, int], bool]) -> Iterator[Rows]:
    place = next(((r, line.index(".")) for r, line in enumerate(rows) if "." in line), None)
    if place is None:
        yield rows
        return
    row, column = place
    for symbol in symbols:
        line = rows[row][:column] + symbol + rows[row][column + 1 :]
        tried = [*rows[:row], line, *rows[row + 1 :]]
        if allows(tried, row, column):
            yield from naive(tried, symbols, allows)


@pytest.mark.parametrize(("size", "empty", "number"), [(4, (4, 11), 60), (6, (15, 24), 15), (9, (30, 45), 2)])
def test_sudoku_has_one_completion(size: int, empty: tuple[int, int], number: int) -> None:
    dials = {"size": size, "min_empty": empty[0], "max_empty": empty[1], "num_problems": number}
    for problem in make_task({"kind": "sudoku", **dials}).problems("train"):
        givens = problem.data["givens"]
        assert [" ".join(rows) for rows in naive(givens, "123456789"[:size], sudoku_allows)] == [problem.reference]
        assert empty[0] <= "".join(givens).count(".") <= empty[1]
        assert "\n".join(givens) in problem.question


@pytest.mark.parametrize(("size", "empty", "number"), [(4, (3, 11), 40), (6, (8, 25), 20), (8, (20, 30), 3)])
def test_takuzu_has_one_completion(size: int, empty: tuple[int, int], number: int) -> None:
    dials = {"size": size, "min_empty": empty[0], "max_empty": empty[1], "num_problems": number}
    for problem in make_task({"kind": "takuzu", **dials}).problems("train"):
        givens = problem.data["givens"]
        assert [" ".join(rows) for rows in naive(givens, "01", takuzu_allows)] == [problem.reference]
        assert empty[0] <= "".join(givens).count(".") <= empty[1]


def test_known_counts() -> None:
    """288 sudoku grids of size 4, 72 takuzu grids of size 4."""
    assert sum(1 for _ in completions((EMPTY,) * 16, 4)) == 288
    assert len(list(naive(["...."] * 4, "01", takuzu_allows))) == 72
    assert sum(1 for _ in takuzu_completions((EMPTY,) * 16, 4)) == 72
    assert [len(lines(size)) for size in (4, 6, 8)] == [6, 14, 34]


def test_contradictory_givens_have_no_completion() -> None:
    assert list(completions((0, 0, *(EMPTY,) * 14), 4)) == []
