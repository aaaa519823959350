"""Statements of knights and knaves: a tree, its truth for every assignment of roles at once, and its words.

A truth table is one integer: bit r is the truth under the r-th of the 2^n assignments, in which person i is a knight
when bit i of r is set. Every assignment is looked at, so one remaining bit proves that the solution is unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

from groupwise.randomness import Draw

Operator = Literal["not", "and", "or", "implies", "iff"]
OPERATORS: tuple[Operator, ...] = ("not", "and", "or", "implies", "iff")
_FILE_OPERATORS = {"telling-truth": "knight", "lying": "knave", "->": "implies", "<=>": "iff"} | {
    name: name for name in ("not", "and", "or")
}
_NUM_PARTS = {"not": (1, 1), "implies": (2, 2), "iff": (2, 2), "and": (2, 9), "or": (2, 9)}


@dataclass(frozen=True, slots=True)
class Statement:
    """`knight` and `knave` are claims about a person; every other operator joins its parts."""

    operator: str
    person: int = 0
    parts: tuple["Statement", ...] = ()


def solutions(statements: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Every assignment (True: knight) under which exactly the knights say something true; statement i is person i's."""
    num_people = len(statements)
    all_rows = (1 << (1 << num_people)) - 1
    knights = [sum(1 << row for row in range(1 << num_people) if row >> person & 1) for person in range(num_people)]
    fitting_rows = all_rows
    for knight, statement in zip(knights, statements, strict=True):
        fitting_rows &= all_rows ^ knight ^ truth_table(statement, knights, all_rows)
    rows = [row for row in range(1 << num_people) if fitting_rows >> row & 1]
    return [tuple(bool(row >> person & 1) for person in range(num_people)) for row in rows]


def truth_table(statement: Statement, knights: Sequence[int], all_rows: int) -> int:
    """The statement's truth table, from the tables of `person i is a knight`."""
    if statement.operator in ("knight", "knave"):
        table = knights[statement.person]
        return table if statement.operator == "knight" else all_rows ^ table
    head, *tail = (truth_table(part, knights, all_rows) for part in statement.parts)
    match statement.operator:
        case "not":
            return all_rows ^ head
        case "and":
            return reduce(int.__and__, tail, head)
        case "or":
            return reduce(int.__or__, tail, head)
        case "implies":
            return all_rows ^ head | tail[0]
        case "iff":
            return all_rows ^ head ^ tail[0]
    raise ValueError(f"unknown operator {statement.operator!r}")


def say(statement: Statement, names: Sequence[str]) -> str:
    """The statement in words; parts that have parts are put in parentheses, so that there is one reading."""
    if statement.operator in ("knight", "knave"):
        return f"{names[statement.person]} is a {statement.operator}"
    parts = [f"({say(part, names)})" if part.parts else say(part, names) for part in statement.parts]
    match statement.operator:
        case "not":
            return f"it is not true that {parts[0]}"
        case "implies":
            return f"if {parts[0]} then {parts[1]}"
        case "iff":
            return f"{parts[0]} if and only if {parts[1]}"
        case word:
            return f" {word} ".join(parts)


def draw_statement(draw: Draw, people: Sequence[int], depth: int, operators: Sequence[Operator]) -> Statement:
    """A random statement of at most this depth; its parts are about different people, so none is empty talk."""
    if depth == 0:
        return Statement(draw.choice(("knight", "knave")), draw.choice(people))
    operator = draw.choice(operators)
    if operator == "not" or len(people) < 2:
        return Statement("not", parts=(draw_statement(draw, people, depth - 1, operators),))
    shuffled_people = draw.shuffled(people)
    halves = shuffled_people[: len(shuffled_people) // 2], shuffled_people[len(shuffled_people) // 2 :]
    return Statement(operator, parts=tuple(draw_statement(draw, half, depth - 1, operators) for half in halves))


def from_tuples(form: Any, num_people: int) -> Statement:
    """A statement from nested tuples such as `('or', ('telling-truth', 1), ('lying', 2))`.

    Raises:
        ValueError: names what is not a statement.
    """
    operator = _FILE_OPERATORS.get(form[0], "") if isinstance(form, tuple) and form else ""
    if operator in ("knight", "knave") and len(form) == 2 and form[1] in range(num_people):
        return Statement(operator, form[1])
    min_parts, max_parts = _NUM_PARTS.get(operator, (1, 0))
    if not min_parts <= len(form) - 1 <= max_parts:
        raise ValueError(f"{form!r} is not a statement about {num_people} people")
    return Statement(operator, parts=tuple(from_tuples(part, num_people) for part in form[1:]))
