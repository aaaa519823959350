"""Tasks of logic and structure. To add one: its file, then its class in `LOGIC_TASKS` and its configuration below."""

from groupwise.tasks.base import Task
from groupwise.tasks.logic.game24 import Game24, Game24Config
from groupwise.tasks.logic.instructions import Instructions, InstructionsConfig
from groupwise.tasks.logic.json_extraction import JsonExtraction, JsonExtractionConfig
from groupwise.tasks.logic.knights_knaves import KnightsKnaves, KnightsKnavesConfig
from groupwise.tasks.logic.nim import Nim, NimConfig
from groupwise.tasks.logic.sudoku import Sudoku, SudokuConfig
from groupwise.tasks.logic.takuzu import Takuzu, TakuzuConfig
from groupwise.tasks.logic.tic_tac_toe import TicTacToe, TicTacToeConfig
from groupwise.tasks.logic.zebra import Zebra, ZebraConfig

LogicOptions = (
    KnightsKnavesConfig
    | ZebraConfig
    | Game24Config
    | SudokuConfig
    | TakuzuConfig
    | JsonExtractionConfig
    | InstructionsConfig
    | NimConfig
    | TicTacToeConfig
)
"""Configurations of these tasks."""

LOGIC_TASKS: tuple[type[Task], ...] = (
    KnightsKnaves, Zebra, Game24, Sudoku, Takuzu, JsonExtraction, Instructions, Nim, TicTacToe,
)  # fmt: skip

__all__ = ["LOGIC_TASKS", "LogicOptions"]
