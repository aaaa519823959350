"""Nim and tic-tac-toe: the listed best moves against plain game-tree search."""

from functools import cache

import pytest

from groupwise.config import parse
from groupwise.tasks.games import (
    GameConfig,
    Nim,
    TicTacToe,
    best_moves,
    reachable,
    symmetric,
    value,
    winning_moves,
)
from groupwise.types import SPLITS


@cache
def wins(piles: tuple[int, ...]) -> bool:
    """Whether the player to move wins, by trying every move."""
    return any(
        not wins(tuple(sorted((*piles[:i], left, *piles[i + 1 :]))))
        for i in range(len(piles))
        for left in range(piles[i])
    )


def test_nim_sum_agrees_with_search() -> None:
    for piles in ((a, b, c) for a in range(6) for b in range(6) for c in range(6)):
        searched = [
            f"{i + 1}:{taken}"
            for i, size in enumerate(piles)
            for taken in range(1, size + 1)
            if not wins(tuple(sorted((*piles[:i], size - taken, *piles[i + 1 :]))))
        ]
        assert sorted(winning_moves(piles)) == sorted(searched)


def test_nim_asks_only_what_can_be_won() -> None:
    for problem in Nim(parse(GameConfig, {"kind": "nim", "num_problems": 50})).problems("train"):
        assert problem.reference in problem.data["best_moves"]
        assert len(problem.data["legal_moves"]) == sum(problem.data["piles"])
        assert len(problem.data["best_moves"]) % 2 == 1  # the number of winning moves is always odd


def result(cells: list[str], player: str) -> int:
    """Negamax on a list that is changed in place; from the view of the player to move."""
    lines = [cells[i : i + 3] for i in (0, 3, 6)] + [cells[i::3] for i in range(3)] + [cells[::4], cells[2:7:2]]
    if any(line == ["X"] * 3 or line == ["O"] * 3 for line in lines):
        return -1
    found = []
    for place in [i for i, cell in enumerate(cells) if cell == "."]:
        cells[place] = player
        found.append(-result(cells, "O" if player == "X" else "X"))
        cells[place] = "."
    return max(found, default=0)


def test_tic_tac_toe_against_plain_search() -> None:
    boards = [board for board in reachable() if board.count(".") <= 6][::7]
    assert len(boards) > 500
    for board in boards:
        mover = "X" if board.count("X") == board.count("O") else "O"
        other = "O" if mover == "X" else "X"
        scores = {}
        for place in [i for i, cell in enumerate(board) if cell == "."]:
            scores[place] = -result([*board[:place], mover, *board[place + 1 :]], other)
        assert best_moves(board) == [place for place, score in scores.items() if score == max(scores.values())]


def test_known_facts() -> None:
    """5,478 legal positions, of which 958 end the game; the game is a draw; a corner opening leaves only the centre."""
    assert len(reachable()) == 5478 - 958
    assert value("." * 9) == 0
    assert best_moves("X........") == [4]
    assert best_moves("XX.OO....") == [2]
    assert "X........" in set(symmetric("..X......"))
    assert len(set(symmetric("XO......."))) == 8


@pytest.mark.parametrize("split", SPLITS)
def test_positions_have_a_worse_move_and_wins_at_once_are_the_reference(split: str) -> None:
    for problem in TicTacToe(GameConfig(kind="tic_tac_toe", num_problems=200)).problems(split):  # type: ignore[arg-type]
        best, legal, board = (problem.data[name] for name in ("best_moves", "legal_moves", "board"))
        assert set(best) < set(legal)
        assert problem.reference in best
        mover = "X" if board.count("X") == board.count("O") else "O"
        wins_at_once = [
            move
            for move in legal
            if result([*board[: int(move) - 1], mover, *board[int(move) :]], "?") == -1
            and _ends([*board[: int(move) - 1], mover, *board[int(move) :]])
        ]
        assert not wins_at_once or problem.reference in wins_at_once


def _ends(cells: list[str]) -> bool:
    lines = [cells[i : i + 3] for i in (0, 3, 6)] + [cells[i::3] for i in range(3)] + [cells[::4], cells[2:7:2]]
    return any(line in (["X"] * 3, ["O"] * 3) for line in lines)


def test_symmetric_positions_share_a_split() -> None:
    task = TicTacToe(GameConfig(kind="tic_tac_toe"))
    classes = [{min(symmetric(problem.data["board"])) for problem in task.problems(split)} for split in SPLITS]
    assert not classes[0] & classes[1]
    assert not classes[0] & classes[2]
    assert not classes[1] & classes[2]
