"""Games that ask for a best move: nim and tic-tac-toe, both solved exactly.

Nim: a position is lost for the player to move exactly when the bitwise exclusive or of the piles is 0 (Bouton 1901,
"Nim, a game with a complete mathematical theory"), so a move wins when it leaves 0. Only positions with such a move
are asked. Tic-tac-toe: a move is best when no other leads to a better result under perfect play, however many
moves that takes; positions that are rotations or reflections of each other share a split.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from operator import xor
from typing import ClassVar

from pydantic import Field

from groupwise.randomness import Draw, permutation
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig, GeneratedTask
from groupwise.types import Problem

PILES = 3, 4
"""Fewest and most piles of nim."""
MAX_OBJECTS = 15
"""Most objects in a pile; the fewest are 1."""
EMPTY_CELLS = range(2, 9)
"""Numbers of empty cells of tic-tac-toe: the more, the further one must look ahead."""


class GameConfig(GeneratedConfig):
    """Dials of the games."""

    num_problems: int = Field(default=1000, ge=1)
    """Problems in the train split."""
    num_eval_problems: int = Field(default=64, ge=1)
    """Problems in the dev split, and the same number in the test split."""


class Nim(DrawnTask):
    """Problems such as `Piles: 3, 4, 6. ... Which move wins?`, answered `1:1` (pile 1, take 1)."""

    name: ClassVar[str] = "nim"
    verifier: ClassVar[str] = "game_move"
    answers_any_question: ClassVar[bool] = False
    Config = GameConfig
    config: GameConfig

    def draw(self, index: int) -> Candidate:
        return draw_nim(Draw("nim", index))


def draw_nim(draw: Draw) -> Candidate:
    """A position in which some move wins; its content is the sorted piles."""
    while True:
        num_piles = draw.integer(*PILES)
        piles = [draw.integer(1, MAX_OBJECTS) for _ in range(num_piles)]
        if best_answers := winning_moves(piles):
            break
    legal_answers = [f"{pile}:{count}" for pile, objects in enumerate(piles, 1) for count in range(1, objects + 1)]
    question = (
        f"Nim with {num_piles} piles: {', '.join(map(str, piles))}. Two players take turns; each takes one or more "
        "objects from one pile, and who takes the last object wins. Which move wins? Answer as pile:number, for "
        "example 1:2 for two objects from the first pile."
    )
    data = {"piles": piles, "best_moves": best_answers, "legal_moves": legal_answers}
    name = "-".join(map(str, piles))
    problem = Problem(f"nim/{name}", question, draw.choice(best_answers), f"nim {num_piles} piles", data=data)
    return f"nim {'-'.join(map(str, sorted(piles)))}", problem


def winning_moves(piles: Sequence[int]) -> list[str]:
    """The moves that leave a nim sum of 0, as `pile:number` with piles from 1."""
    total = reduce(xor, piles, 0)
    return [f"{pile}:{size - (size ^ total)}" for pile, size in enumerate(piles, 1) if size ^ total < size]


EMPTY = "."
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
TURN = (6, 3, 0, 7, 4, 1, 8, 5, 2)
"""Source of each cell when the board is turned by 90 degrees."""
MIRROR = (2, 1, 0, 5, 4, 3, 8, 7, 6)


class TicTacToe(GeneratedTask):
    """Problems that show a board; the answer is the number of a cell, 1 to 9."""

    name: ClassVar[str] = "tic_tac_toe"
    verifier: ClassVar[str] = "game_move"
    answers_any_question: ClassVar[bool] = False
    Config = GameConfig
    config: GameConfig

    def candidates(self) -> Iterator[Candidate]:
        boards = reachable()
        for index in permutation(len(boards), "tic_tac_toe").tolist():
            board = boards[index]
            num_empty = board.count(EMPTY)
            if num_empty in EMPTY_CELLS and len(best_moves(board)) < num_empty:
                yield tic_tac_toe_problem(board)


def tic_tac_toe_problem(board: str) -> Candidate:
    """A problem; its content is the first of the board's rotations and reflections."""
    best_answers = [str(cell + 1) for cell in best_moves(board)]
    wins = [str(cell + 1) for cell, result in moves(board) if winner(result)]
    rows = "\n".join(board[start : start + 3] for start in (0, 3, 6))
    question = (
        f"Tic-tac-toe, cells numbered 1 to 9 row by row from the top left:\n{rows}\n{player(board)} is to move. Which "
        "cell is a best move under perfect play? Answer with its number."
    )
    legal_answers = [str(cell + 1) for cell, mark in enumerate(board) if mark == EMPTY]
    data = {"board": board, "best_moves": best_answers, "legal_moves": legal_answers}
    label = f"tic-tac-toe {board.count(EMPTY)} empty"
    problem = Problem(f"tic_tac_toe/{board}", question, (wins or best_answers)[0], label, data=data)
    return f"tic_tac_toe {min(symmetric(board))}", problem


def player(board: str) -> str:
    """Return the player to move; X begins."""
    return "X" if board.count("X") == board.count("O") else "O"


def winner(board: str) -> str:
    """Return the player with three in a line, or an empty text."""
    return next((board[a] for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), "")


def moves(board: str) -> Iterator[tuple[int, str]]:
    """Every legal move (a cell from 0) and the board after it."""
    if not winner(board):
        for cell, mark in enumerate(board):
            if mark == EMPTY:
                yield cell, f"{board[:cell]}{player(board)}{board[cell + 1 :]}"


@cache
def value(board: str) -> int:
    """Result under perfect play for the player to move: 1 won, 0 drawn, -1 lost."""
    if winner(board):
        return -1
    return max((-value(result) for _, result in moves(board)), default=0)


def best_moves(board: str) -> list[int]:
    """The cells (from 0) of all moves that keep the position's value."""
    return [cell for cell, result in moves(board) if -value(result) == value(board)]


@cache
def reachable() -> tuple[str, ...]:
    """Every position that a game can reach and that is not over, in a fixed order."""
    positions, layer = [], {EMPTY * 9}
    while layer:
        open_boards = sorted(board for board in layer if EMPTY in board and not winner(board))
        positions += open_boards
        layer = {result for board in open_boards for _, result in moves(board)}
    return tuple(positions)


def symmetric(board: str) -> Iterator[str]:
    """The board's eight rotations and reflections."""
    for _ in range(4):
        board = "".join(board[source] for source in TURN)
        yield board
        yield "".join(board[source] for source in MIRROR)
