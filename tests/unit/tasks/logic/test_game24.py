"""Game of 24: which hands can be solved, and that the solutions are."""

from fractions import Fraction
from pathlib import Path

import pytest

from groupwise.tasks.logic.game24 import Game24, Game24Config, solve, write
from groupwise.types import SPLITS

PUZZLES = Path(__file__).parents[5] / "shared/data/game24/24.csv"


def reachable(numbers: tuple[Fraction, ...]) -> set[Fraction]:
    """Every value, by splitting the hand in two: another search than the program's."""
    if len(numbers) == 1:
        return set(numbers)
    found = set()
    for mask in range(1, 2 ** len(numbers) - 1):
        left, right = ([n for i, n in enumerate(numbers) if (mask >> i & 1) == side] for side in (0, 1))
        for a in reachable(tuple(left)):
            for b in reachable(tuple(right)):
                found |= {a + b, a - b, a * b} | ({a / b} if b else set())
    return found


@pytest.mark.skipif(not PUZZLES.exists(), reason="the published puzzles are not here")
def test_the_solvable_hands_are_the_1362_published_ones() -> None:
    hands = {tuple(sorted(map(int, line.split(",")[1].split()))) for line in PUZZLES.read_text().splitlines()[1:]}
    found = {tuple(sorted(problem.data["numbers"])) for _, problem in Game24(Game24Config(kind="game24")).candidates()}
    assert found == hands
    assert len(found) == 1362


@pytest.mark.parametrize(
    "hand", [(3, 3, 8, 8), (1, 5, 5, 5), (1, 1, 1, 1), (3, 7, 3, 7), (1, 3, 4, 6), (13, 13, 13, 1)]
)
def test_an_independent_search_agrees(hand: tuple[int, ...]) -> None:
    assert (solve(hand, 24) is not None) == (24 in reachable(tuple(map(Fraction, hand))))


def test_expressions_are_written_with_the_parentheses_they_need() -> None:
    assert write(("÷", 8, ("-", 3, ("÷", 8, 3)))) == "8÷(3-8÷3)"
    assert write(("-", ("+", 1, 2), ("-", 3, 4))) == "1+2-(3-4)"
    assert write(("×", ("+", 1, 2), ("÷", 3, ("×", 4, 5)))) == "(1+2)×3÷(4×5)"
    assert write(("+", 1, ("-", 2, 3))) == "1+2-3"


def test_all_published_hands_are_in_some_split() -> None:
    task = Game24(Game24Config(kind="game24"))
    sizes = [len(task.problems(split)) for split in SPLITS]
    assert sizes == [1000, 50, 50]
