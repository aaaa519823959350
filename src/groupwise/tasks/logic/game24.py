"""Game of 24: make 24 of four numbers from 1 to 13, each used exactly once, with + - × ÷.

Unlike countdown's problems these are all there are: every multiset of numbers is searched exhaustively with exact
fractions (8÷(3-8÷3) counts), and the solvable ones are the problems. The verifier is `countdown`.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement
from typing import ClassVar

from pydantic import Field

from groupwise.randomness import Draw, permutation
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Problem

Tree = int | tuple[str, "Tree", "Tree"]
"""An expression: a number, or a sign and its two operands."""
Term = tuple[int, int, Tree]
"""Numerator and denominator (not reduced, may be negative) of an expression."""


class Game24Config(GeneratedConfig):
    """Dials of the game of 24."""

    num_problems: int = Field(default=1000, ge=1)
    """Problems in the train split; with the standard numbers and target there are 1,362 in all splits."""
    num_eval_problems: int = Field(default=50, ge=1)
    """Problems in the dev split, and the same number in the test split."""
    num_numbers: int = Field(default=4, ge=2, le=5)
    """Numbers in a problem."""
    max_value: int = Field(default=13, ge=2, le=25)
    """Largest number; 13 as on playing cards."""
    target: int = Field(default=24, ge=1, le=1000)
    """What to make of the numbers."""


class Game24(GeneratedTask):
    """Problems such as `Using 3, 8, 3 and 8 once each, make 24.`."""

    name: ClassVar[str] = "game24"
    verifier: ClassVar[str] = "countdown"
    answers_any_question: ClassVar[bool] = False
    Config = Game24Config
    config: Game24Config

    def candidates(self) -> Iterator[Candidate]:
        config = self.config
        hands = list(combinations_with_replacement(range(1, config.max_value + 1), config.num_numbers))
        for index in permutation(len(hands), "game24", config.num_numbers, config.max_value, config.target).tolist():
            solution = solve(hands[index], config.target)
            if solution is not None:
                yield _candidate(hands[index], config.target, solution)


def _candidate(hand: Sequence[int], target: int, solution: str) -> Candidate:
    name = f"{'-'.join(map(str, hand))}={target}"
    numbers = Draw("game24", name).shuffled(hand)
    problem = Problem(
        id=f"game24/{name}",
        question=f"Using {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} once each, make {target}.",
        reference=solution,
        difficulty=f"game24 {len(hand)}",
        data={"numbers": numbers, "target": target},
    )
    return f"game24 {name}", problem


@cache
def solve(numbers: tuple[int, ...], target: int) -> str | None:
    """An expression that uses each number once and equals the target; None when there is none."""
    tree = _search([(number, 1, number) for number in numbers], target)
    return None if tree is None else write(tree)


def _search(terms: list[Term], target: int) -> Tree | None:
    if len(terms) == 1:
        numerator, denominator, tree = terms[0]
        return tree if numerator == target * denominator else None
    for i in range(len(terms)):
        for j in range(i):
            rest = [term for index, term in enumerate(terms) if index not in (i, j)]
            for combination in _combine(terms[i], terms[j]):
                if (solution := _search([*rest, combination], target)) is not None:
                    return solution
    return None


def _combine(left: Term, right: Term) -> Iterator[Term]:
    """Every number that one operation makes of two."""
    (a, b, x), (c, d, y) = left, right
    yield a * d + c * b, b * d, ("+", x, y)
    yield a * d - c * b, b * d, ("-", x, y)
    yield c * b - a * d, b * d, ("-", y, x)
    yield a * c, b * d, ("×", x, y)
    if c:
        yield a * d, b * c, ("÷", x, y)
    if a:
        yield c * b, d * a, ("÷", y, x)


def write(tree: Tree) -> str:
    """An expression's text, with parentheses around every sum or difference within and every compound divisor."""
    if isinstance(tree, int):
        return str(tree)
    sign, left, right = tree
    left_signs = "" if sign in "+-" else "+-"
    right_signs = {"+": "", "÷": "+-×÷"}.get(sign, "+-")
    return f"{_enclose(left, left_signs)}{sign}{_enclose(right, right_signs)}"


def _enclose(tree: Tree, loose_signs: str) -> str:
    return f"({write(tree)})" if not isinstance(tree, int) and tree[0] in loose_signs else write(tree)
