"""Puzzles whose answer is a short text: knights and knaves, moves in games."""

import re

from groupwise.types import Outcome, Problem
from groupwise.verifiers.logic.base import ExactVerifier, Measured, ReferenceVerifier, UnreadableError, plain, shown

_SEPARATOR = re.compile(r"[,;\n]|\band\b", re.IGNORECASE)
_CLAIM = re.compile(
    r"(?:\(?[0-9]{1,2}[).:] ?)?(?P<name>[^:=]{1,60}?) ?(?: is(?: an?)?|:|=) ?(?P<role>knight|knave)", re.IGNORECASE
)
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
