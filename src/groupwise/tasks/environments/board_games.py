"""Nim and tic-tac-toe against a perfect player.

Nim: a position is lost for the player to move exactly when the bitwise exclusive or of the piles is 0 (Bouton 1901,
"Nim, a game with a complete mathematical theory"), so a move wins when it leaves 0. Only positions with such a move
are begun. Tic-tac-toe is a draw when both play perfectly.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import count
from operator import xor

from groupwise.randomness import Draw
from groupwise.tasks.environments.base import Decided, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.types import Problem


class BoardGame(Environment):
    """Two players move in turn; an illegal move loses. Whoever does not lose earns 1.

    A position is a text; `won` of one that is over is its result for the model: 1, 0 (a draw) or -1.
    """

    def start(self, problem: Problem, seed: int) -> Opening:
        self._draw, self._position = Draw("board game", seed), problem.reference
        return Opening.of(problem.question)

    @abstractmethod
    def moves(self, position: str) -> dict[str, str]:
        """Return the legal moves, and the positions that they lead to."""

    @abstractmethod
    def good(self, position: str) -> Sequence[str]:
        """Return the moves that perfect play allows."""

    @abstractmethod
    def won(self, position: str, is_own: bool) -> int | None:
        """Return the result for the model of a position after a move, its own or the other's; None: it goes on."""

    def step(self, turn: Turn) -> Reply:
        moves = self.moves(self._position)
        if (said := turn.text.strip()) not in moves:
            return Reply(reward=0.0, done=True, outcome="wrong", evidence=f"{said!r:.40} is no legal move")
        self._position = moves[said]
        if (result := self.won(self._position, True)) is None:
            answer = self._draw.choice(self.good(self._position))
            self._position = self.moves(self._position)[answer]
            result = self.won(self._position, False)
        if result is None:
            return Reply.of(self._position, reward=0.0, state=self._position)
        words = {1: "won", 0: "drawn", -1: "lost"}[result]
        outcome: Decided = "wrong" if result < 0 else "correct"
        return Reply(reward=float(result >= 0), done=True, outcome=outcome, evidence=f"{self._position}: {words}")

    def best(self) -> str:
        return self.good(self._position)[0]

    def options(self) -> list[str]:
        return list(self.moves(self._position))


class Nim(BoardGame):
    """Piles such as `3 4 6`; `2:1` takes one object of the second. Who takes the last object wins."""

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        for index in count():
            draw = Draw("nim", index)
            piles = [draw.integer(1, 7) for _ in range(3)]
            if reduce(xor, piles):
                text = " ".join(map(str, piles))
                yield Problem(f"nim/{index}", text, text, "nim")

    def moves(self, position: str) -> dict[str, str]:
        piles = position.split()
        return {
            f"{i + 1}:{n}": " ".join([*piles[:i], str(int(size) - n), *piles[i + 1 :]])
            for i, size in enumerate(piles)
            for n in range(1, int(size) + 1)
        }

    def good(self, position: str) -> list[str]:
        moves = self.moves(position)
        return [move for move, after in moves.items() if not reduce(xor, map(int, after.split()))] or list(moves)

    def won(self, position: str, is_own: bool) -> int | None:
        return None if position.strip("0 ") else 1 if is_own else -1


EMPTY = "."
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


class TicTacToe(BoardGame):
    """Boards such as `X..O.....`, row by row; a digit, 1 to 9, is a cell. In half of the games the other begins."""

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        for index in count():
            board = EMPTY * 9
            if index % 2:
                board = moves(board)[Draw("tic-tac-toe", index).choice(best_moves(board))]
            yield Problem(f"tic_tac_toe/{index}", board, board, f"tic-tac-toe, {'second' if index % 2 else 'first'}")

    def moves(self, position: str) -> dict[str, str]:
        return moves(position)

    def good(self, position: str) -> list[str]:
        return best_moves(position)

    def won(self, position: str, is_own: bool) -> int | None:
        if winner(position):
            return 1 if is_own else -1
        return None if EMPTY in position else 0


def moves(board: str) -> dict[str, str]:
    """Return every legal move and the board after it; X begins."""
    mark = "X" if board.count("X") == board.count("O") else "O"
    return {str(i + 1): f"{board[:i]}{mark}{board[i + 1 :]}" for i, cell in enumerate(board) if cell == EMPTY}


def winner(board: str) -> str:
    """Return the player with three in a line, or an empty text."""
    return next((board[a] for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), "")


@cache
def value(board: str) -> int:
    """Result under perfect play for the player to move: 1 won, 0 drawn, -1 lost."""
    if winner(board):
        return -1
    return max((-value(after) for after in moves(board).values()), default=0)


def best_moves(board: str) -> list[str]:
    """Return the moves that keep the position's value."""
    return [move for move, after in moves(board).items() if -value(after) == value(board)]
