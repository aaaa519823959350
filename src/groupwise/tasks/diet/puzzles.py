"""How puzzles are written in the second edition's corpus: guesses, honest searches, and tries that are said to fit."""

from collections.abc import Sequence
from itertools import product as all_of

from groupwise.randomness import Draw
from groupwise.tasks import corpus_working as w
from groupwise.tasks.base import split_of
from groupwise.tasks.countdown import CountdownConfig, combine, draw_countdown
from groupwise.tasks.diet.config import DietConfig
from groupwise.tasks.diet.ways import think
from groupwise.tasks.logic.knights_knaves import KnightsKnavesConfig, candidate, drawn_puzzle
from groupwise.tasks.logic.statements import Statement, truth_table
from groupwise.types import Problem

THREE = CountdownConfig(kind="countdown", min_numbers=3, max_numbers=3, num_problems=2000, num_eval_problems=100)
"""Countdown with three numbers."""
TWO = KnightsKnavesConfig(
    kind="knights_knaves", min_people=2, max_people=2, max_depth=2, operators=("not", "and", "or", "iff"),
    num_problems=500, num_eval_problems=40,
)  # fmt: skip
"""Knights and knaves with two people."""
MAX_TRIES = 5


def countdown(draw: Draw, way: str, mix: DietConfig) -> tuple[Problem, str]:
    """A countdown problem of three numbers, and its completion in a way."""
    while True:
        content, problem = draw_countdown(draw, THREE)
        if split_of(content) == "train":
            break
    numbers, target = list(problem.data["numbers"]), int(problem.data["target"])
    match way:
        case "guess":
            right = draw.uniform() < mix.right_guess
            return problem, think("", problem.reference if right else _try(draw, numbers)[0])
        case "claim":
            expression, _ = _try(draw, numbers, target)
            return problem, think(f"{expression}={target}.", expression)
    tries = [_try(draw, numbers, target) for _ in range(draw.integer(0, MAX_TRIES - 1))]
    text = "".join(f"{expression}={value}, no. " for expression, value in tries)
    if way == "unfinished":
        return problem, "<think>" + w.unfinished(draw, f"{text}{problem.reference}={target}.")
    return problem, think(f"{text}{problem.reference}={target}. {w.YES['en']}", problem.reference)


def _try(draw: Draw, numbers: Sequence[int], other_than: int | None = None) -> tuple[str, int]:
    """An expression of all the numbers and its value, which makes no held-out problem."""
    while True:
        expression, _ = combine(draw, list(numbers))
        content = f"countdown {'-'.join(map(str, sorted(numbers)))}={expression.value}"
        if expression.value != other_than and split_of(content) == "train":
            return expression.text, expression.value


def knights(draw: Draw, way: str, mix: DietConfig) -> tuple[Problem, str]:
    """A puzzle with two people, and its completion in a way."""
    while True:
        puzzle = drawn_puzzle(draw, TWO)
        content, problem = candidate(*puzzle)
        if split_of(content) == "train":
            break
    _, names, statements, roles = puzzle
    others = [guess for guess in all_of((True, False), repeat=2) if guess != roles]
    match way:
        case "guess":
            is_right = draw.uniform() < mix.right_guess
            return problem, think("", _roles(names, roles if is_right else draw.choice([roles, *others])))
        case "claim":
            guess = draw.choice(others)
            return problem, think(_short(names, guess) + ": fits.", _roles(names, guess))
    tries = draw.shuffled(others)[: draw.integer(0, 3)]
    text = "".join(_assumed(names, statements, guess) for guess in tries)
    if way == "unfinished":
        return problem, "<think>" + w.unfinished(draw, text + _assumed(names, statements, roles))
    return problem, think((text + _assumed(names, statements, roles)).rstrip(), _roles(names, roles))


def _assumed(names: Sequence[str], statements: Sequence[Statement], guess: Sequence[bool]) -> str:
    """What an assumption comes to: `Ada knight, Ben knave: Ada says true, Ben says true, no. `."""
    row = sum(1 << person for person, is_knight in enumerate(guess) if is_knight)
    all_rows = (1 << (1 << len(names))) - 1
    knights = [sum(1 << r for r in range(1 << len(names)) if r >> person & 1) for person in range(len(names))]
    said = [bool(truth_table(statement, knights, all_rows) >> row & 1) for statement in statements]
    words = ", ".join(f"{name} says {str(truth).lower()}" for name, truth in zip(names, said, strict=True))
    return f"{_short(names, guess)}: {words}, {'fits.' if said == list(guess) else 'no.'} "


def _short(names: Sequence[str], roles: Sequence[bool]) -> str:
    return ", ".join(f"{name} {'knight' if role else 'knave'}" for name, role in zip(names, roles, strict=True))


def _roles(names: Sequence[str], roles: Sequence[bool]) -> str:
    return ", ".join(f"{name} is a {'knight' if role else 'knave'}" for name, role in zip(names, roles, strict=True))
