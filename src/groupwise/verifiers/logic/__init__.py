"""Verifiers of logic and structure: exact, in process, without a worker. To add one: its module and a line here."""

from collections.abc import Mapping
from types import MappingProxyType

from groupwise.verifiers.base import Verifier
from groupwise.verifiers.logic.game_move import GameMoveVerifier
from groupwise.verifiers.logic.grids import SudokuVerifier, TakuzuVerifier
from groupwise.verifiers.logic.instructions import InstructionsVerifier
from groupwise.verifiers.logic.json_text import JsonVerifier
from groupwise.verifiers.logic.knights_knaves import KnightsKnavesVerifier
from groupwise.verifiers.logic.zebra import ZebraVerifier

LOGIC_VERIFIERS: Mapping[str, type[Verifier]] = MappingProxyType({
    "knights_knaves": KnightsKnavesVerifier,
    "zebra": ZebraVerifier,
    "sudoku": SudokuVerifier,
    "takuzu": TakuzuVerifier,
    "json": JsonVerifier,
    "instructions": InstructionsVerifier,
    "game_move": GameMoveVerifier,
})  # fmt: skip
"""Name, as a task states it, to class."""

__all__ = ["LOGIC_VERIFIERS"]
