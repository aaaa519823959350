"""Games of several turns: their optimum, found a second way, and what perfect, random and single turns are worth."""

from fractions import Fraction
from functools import cache
from itertools import combinations, product
from statistics import fmean
from typing import Any

import pytest

import games
from games import PRESSES, best_moves, moves, value, winner
from groupwise.randomness import Draw
from groupwise.tasks import make_task
from groupwise.tasks.environments.base import Environment, Reply, Turn
from groupwise.tasks.episodes import Episodes, scripted
from groupwise.types import SPLITS, Problem

GAMES = ("guess", "blackjack", "lights_out", "nim", "tic_tac_toe")


def game(kind: str, **settings: Any) -> Episodes:
    task = make_task({"kind": "episodes", "environment": {"kind": kind, **settings}, "num_problems": 300})
    assert isinstance(task, Episodes)
    return task


def played(task: Episodes, how: str, index: int) -> list[Reply]:
    """Play a problem perfectly, at random, or with one turn alone, as the driver does."""
    config, problem = task.config.environment, task.problems("train")[index]
    environment: Environment = task.config.environment_class(config)
    environment.start(problem, index)
    draw, replies = Draw("random play", index), list[Reply]()
    for _ in range(1 if how == "one turn" else config.max_turns):
        said = draw.choice(environment.options()) if how == "random" else environment.best()
        replies.append(environment.step(Turn(str(said))))
        if replies[-1].done:
            return replies
    if (ended := environment.ended("turn_limit")) is not None:
        replies.append(ended)
    return replies


def results(kind: str, how: str, num: int = 300, **settings: Any) -> tuple[float, float]:
    """Share that is correct, and mean reward."""
    task = game(kind, **settings)
    episodes = [played(task, how, index) for index in range(num)]
    correct = [next((r.outcome for r in reversed(replies) if r.outcome), "") == "correct" for replies in episodes]
    return fmean(correct), fmean(sum(reply.reward or 0.0 for reply in replies) for replies in episodes)


@pytest.mark.parametrize("kind", GAMES)
def test_problems_of_the_splits_differ_and_stay(kind: str) -> None:
    task = game(kind)
    ids = [problem.id for split in SPLITS for problem in task.problems(split)]
    assert len(set(ids)) == len(ids) == 300 + 200 + 200
    assert [problem.id for split in SPLITS for problem in game(kind).problems(split)] == ids
    assert all(problem.environment == task.config.environment for problem in task.problems("dev"))


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("said", ["", "x", "0", "10", "1:9", "-1", "²", "1" * 5000, "1\n2", "\ud800"])
def test_whatever_is_said_is_answered(kind: str, said: str) -> None:
    task = game(kind)
    environment = task.config.environment_class(task.config.environment)
    environment.start(task.problems("train")[0], 3)
    reply = environment.step(Turn(said))
    assert reply.reward is not None
    assert reply.reward <= 0
    assert reply.outcome != "correct"


@pytest.mark.parametrize(
    ("kind", "perfect", "random", "one"),
    [  # share that is correct, at most for random play and for one turn
        ("guess", 1.0, 0.5, 0.1),
        ("lights_out", 1.0, 0.1, 0.4),
        ("nim", 1.0, 0.4, 0.3),
        ("tic_tac_toe", 1.0, 0.3, 0.0),
    ],
)
def test_perfect_play_wins_and_controls_do_not(kind: str, perfect: float, random: float, one: float) -> None:
    assert results(kind, "perfect")[0] == perfect
    assert results(kind, "random")[0] <= random
    assert results(kind, "one turn")[0] <= one


def test_guessing_takes_as_many_turns_as_halving() -> None:
    @cache
    def least(numbers: int) -> int:
        """Fewest guesses in all, summed over the numbers, by dynamic programming."""
        return numbers + min((least(k) + least(numbers - 1 - k) for k in range(numbers)), default=0) if numbers else 0

    task = game("guess", highest=31)
    config = task.config.environment
    scripts = [(p, scripted(config, p, 0, 0.0, Draw("x"))) for p in task.problems("train")]
    by_secret = {problem.reference: len(script.turns) for problem, script in scripts if script}
    assert len(by_secret) == 31
    assert max(by_secret.values()) == 5
    assert sum(by_secret.values()) == least(31) == 129  # a mean of 4.16


def test_blackjack_by_a_second_computation() -> None:
    """Perfect play wins what dynamic programming says, and the dealer's totals are those of enumeration."""

    def enumerated(hand: games.Hand, chance: Fraction) -> dict[int, Fraction]:
        if hand[0] >= 17:
            return {hand[0]: chance}
        totals: dict[int, Fraction] = {}
        for card in (*range(1, 10), *(10,) * 4):
            for total, p in enumerated(games.with_card(hand, card), chance / 13).items():
                totals[total] = totals.get(total, Fraction(0)) + p
        return totals

    exact = enumerated((16, False), Fraction(1))
    assert games.dealers((16, False)) == pytest.approx({total: float(p) for total, p in exact.items()})
    assert games.optimum() == pytest.approx(-0.0466, abs=1e-4)
    mean = results("blackjack", "perfect", 300)[1]
    assert abs(mean - games.optimum()) < 3 * 0.95 / 300**0.5
    assert results("blackjack", "random", 300)[1] < -0.25
    assert games.of_hit((16, False), 10) > games.of_stand(16, 10)  # the textbook's hardest hand
    assert games.of_stand(12, 4) > games.of_hit((12, False), 4)


def test_lights_out_by_all_subsets() -> None:
    """A press twice is none, so the least number is that of the smallest set that turns all lights out."""
    least: dict[int, int] = {}
    begun = game("lights_out").config.environment_class(game("lights_out").config.environment)
    for size in range(10):
        for cells in combinations(PRESSES, size):
            board = 0
            for press in cells:
                board ^= press
            least.setdefault(board, size)
            begun.start(Problem("", "", f"{board:09b}"), 0)
            counted = begun.working()
            assert [counted[4], counted[8], counted[13]] == [str(int(press in cells)) for press in PRESSES[:3]]
    assert games.least() == least
    assert PRESSES[0] == 0b110100000
    assert PRESSES[4] == 0b010111010


def test_tic_tac_toe_is_a_draw_by_a_second_search() -> None:
    @cache
    def search(board: str, player: str) -> int:
        lines = [board[i : i + 3] for i in (0, 3, 6)] + [board[i::3] for i in range(3)] + [board[::4], board[2:7:2]]
        if any(line in ("XXX", "OOO") for line in lines):
            return -1
        other = "O" if player == "X" else "X"
        after = [board[:i] + player + board[i + 1 :] for i, cell in enumerate(board) if cell == "."]
        return max((-search(each, other) for each in after), default=0)

    layer = {"." * 9}
    while layer:
        for board in layer:
            assert value(board) == search(board, "X" if board.count("X") == board.count("O") else "O")
            assert set(best_moves(board)) <= moves(board).keys()
        layer = {after for board in layer if not winner(board) for after in moves(board).values()}
    assert value("." * 9) == 0


def test_nim_sum_agrees_with_search() -> None:
    @cache
    def wins(piles: tuple[int, ...]) -> bool:
        after = [(*piles[:i], left, *piles[i + 1 :]) for i in range(3) for left in range(piles[i])]
        return any(not wins(each) for each in after)

    nim = game("nim").config.environment_class(game("nim").config.environment)
    for piles in product(range(5), repeat=3):
        position = " ".join(map(str, piles))
        good = [nim.moves(position)[move] for move in nim.good(position)] if any(piles) else []  # type: ignore[attr-defined]
        if wins(piles):
            assert good
            assert not any(wins(tuple(map(int, after.split()))) for after in good)
        else:
            assert len(good) == sum(piles)  # any move, for all of them lose
    nim.start(Problem("", "", "3 4 6"), 0)
    assert nim.working() == "257"  # 4 ^ 6, 3 ^ 6, 3 ^ 4: the first pile has more than 2, so 1:1 wins


def test_an_environment_without_problems_needs_them() -> None:
    with pytest.raises(ValueError, match="brings no problems; problems is needed"):
        make_task({"kind": "episodes", "environment": {"kind": "groupwise.tasks.environments.base:Environment"}})
    rows = {"kind": "arithmetic", "num_problems": 5, "num_eval_problems": 2}
    task = make_task({"kind": "episodes", "environment": "guess", "problems": rows})
    assert [problem.question for problem in task.problems("train")] == [
        problem.question for problem in make_task(rows).problems("train")
    ]
