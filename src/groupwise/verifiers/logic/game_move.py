"""Games: a move is correct when it is one of the best moves of the position, as the task's exact solver listed them.

Needs `problem.data["best_moves"]` and `problem.data["legal_moves"]`, texts such as `5` (a cell) or `2:3` (pile, count).
"""

import re

from groupwise.types import Outcome, Problem
from groupwise.verifiers.logic.base import ExactVerifier, Measured, UnreadableError, shown

_MOVE = re.compile(r"[0-9]{1,3}(?: ?: ?[0-9]{1,3})?")


class GameMoveVerifier(ExactVerifier):
    """Any best move is correct; a legal move that is not best and an illegal one are wrong."""

    one_right = False

    def find(self, problem: Problem, answer: str) -> Measured:
        best, legal = list(problem.data["best_moves"]), list(problem.data["legal_moves"])
        if not _MOVE.fullmatch(answer):
            raise UnreadableError(f"{shown(answer)} is not a move")
        move = answer.replace(" ", "")
        if move in best:
            return Measured(Outcome.CORRECT, f"{move} is a best move", move)
        return Measured(Outcome.WRONG, f"{move} is {'not a best' if move in legal else 'no legal'} move", move)
