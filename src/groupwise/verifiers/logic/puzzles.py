"""Puzzles whose answer is a short text: knights and knaves, zebra puzzles, moves in games."""

import re

from groupwise.types import Outcome, Problem
from groupwise.verifiers.logic.base import ExactVerifier, Measured, ReferenceVerifier, UnreadableError, plain, shown

_SEPARATOR = re.compile(r"[,;\n]|\band\b", re.IGNORECASE)
_CLAIM = re.compile(
    r"(?:\(?[0-9]{1,2}[).:] ?)?(?P<name>[^:=]{1,60}?) ?(?: is(?: an?)?|:|=) ?(?P<role>knight|knave)", re.IGNORECASE
)
_ROW = re.compile(r"(?:(?:house )?(?P<house>[1-9][0-9]?) ?: ?)?(?P<values>[^:]+)", re.IGNORECASE)
_VALUE = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_MOVE = re.compile(r"[0-9]{1,3}(?: ?: ?[0-9]{1,3})?")
Roles = dict[str, str]
"""Role by name, both in lower case."""


class KnightsKnavesVerifier(ReferenceVerifier[Roles]):
    """The role of everyone named in the reference answer, each named once and nothing else said.

    Reads `Zoey is a knight, Ella is a knave` (also `Zoey: knight`, numbered lines, `and`) in any order and case.
    """

    def read(self, text: str) -> Roles:
        roles: Roles = {}
        for claim in _SEPARATOR.split(plain(text).rstrip(".")):
            if claim.strip():
                name, role = _read_claim(claim.strip())
                if name in roles:
                    raise UnreadableError(f"{shown(name)} is named twice")
                roles[name] = role
        return roles

    def difference(self, answer: Roles, reference: Roles) -> str:
        for name in [*reference, *answer]:
            if answer.get(name) != reference.get(name):
                role, true_role = answer.get(name, "nothing"), reference.get(name, "asked about")
                return f"{shown(name)} is said to be {role}, not {true_role}"
        return ""

    def canonical(self, content: Roles) -> str:
        return ", ".join(f"{name}: {role}" for name, role in sorted(content.items()))


def _read_claim(claim: str) -> tuple[str, str]:
    match = _CLAIM.fullmatch(claim)
    if match is None:
        raise UnreadableError(f"{shown(claim)} is not of the form `name is a knight` or `name is a knave`")
    return match["name"].casefold(), match["role"].lower()


Table = dict[int, tuple[str, ...]]
"""Sorted values in lower case by house number; a single value is under 0."""


class ZebraVerifier(ReferenceVerifier[Table]):
    """One value, or the whole table as `1: Anna, tea; 2: Ben, milk`, equal to the reference.

    The rows may come in any order, and so may the values of a row; no house and no value occurs twice.
    """

    def read(self, text: str) -> Table:
        table: Table = {}
        for row in re.split(r"[;\n]", plain(text).rstrip(".")):
            if row.strip():
                house, values = _read_row(row.strip())
                if house in table:
                    raise UnreadableError(f"house {house} occurs twice" if house else "several answers")
                table[house] = values
        _refuse_repeats(table)
        return table

    def difference(self, answer: Table, reference: Table) -> str:
        for house in [*reference, *answer]:
            if answer.get(house) != reference.get(house):
                row, true_row = (", ".join(table.get(house, ("nothing",))) for table in (answer, reference))
                return f"{f'house {house}' if house else 'the value'} is {shown(row)}, not {shown(true_row)}"
        return ""

    def canonical(self, content: Table) -> str:
        if 0 in content:
            return "".join(content[0])
        return "; ".join(f"{house}: {', '.join(values)}" for house, values in sorted(content.items()))


def _read_row(row: str) -> tuple[int, tuple[str, ...]]:
    match = _ROW.fullmatch(row)
    values = [value.strip().casefold() for value in match["values"].split(",")] if match else []
    if match is None or not all(_VALUE.fullmatch(value) for value in values):
        raise UnreadableError(f"{shown(row)} is neither a value nor of the form `1: value, value`")
    if match["house"] is None and len(values) > 1:
        raise UnreadableError(f"{shown(row)} gives {len(values)} values, one is asked for")
    return int(match["house"] or 0), tuple(sorted(values))


def _refuse_repeats(table: Table) -> None:
    values = [value for row in table.values() for value in row]
    if 0 in table and len(table) > 1:
        raise UnreadableError("a value is outside the table")
    if len(set(values)) != len(values):
        raise UnreadableError("a value occurs twice")


class GameMoveVerifier(ExactVerifier):
    """Any best move of the position is correct; a legal move that is not best and an illegal one are wrong.

    Needs `problem.data["best_moves"]`, as the task's exact solver listed them, and `problem.data["legal_moves"]`, texts
    such as `5` (a cell) or `2:3` (pile, count).
    """

    one_right = False

    def find(self, problem: Problem, answer: str) -> Measured:
        best_moves, legal_moves = list(problem.data["best_moves"]), list(problem.data["legal_moves"])
        if not _MOVE.fullmatch(answer):
            raise UnreadableError(f"{shown(answer)} is not a move")
        move = answer.replace(" ", "")
        if move in best_moves:
            return Measured(Outcome.CORRECT, f"{move} is a best move", move)
        return Measured(Outcome.WRONG, f"{move} is {'not a best' if move in legal_moves else 'no legal'} move", move)
