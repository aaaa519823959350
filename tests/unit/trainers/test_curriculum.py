"""Which problems a step takes."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

from groupwise.trainers.rl_run import FADING, UNSEEN, PassRates, problem_order
from groupwise.types import Problem, ScoredGroup

Score = Callable[[Problem, bool], ScoredGroup]


def test_an_epoch_holds_every_problem_once() -> None:
    first, second = (
        [index for step in steps for index in problem_order(23, 5, seed=0, step=step)[:5]]
        for steps in (range(4), range(4, 8))
    )
    for epoch in (first, second):
        assert len(set(epoch)) == 20
    assert first != second


def test_spares_are_the_rest_in_the_epochs_order() -> None:
    order = problem_order(23, 5, seed=0, step=1)
    assert sorted(order) == list(range(23))
    assert order[5:10] == problem_order(23, 5, seed=0, step=2)[:5]


def test_rates_fade_and_survive_a_checkpoint(scored: Score) -> None:
    rates = PassRates({})
    problem, neighbour = Problem("p", "", "", "easy"), Problem("q", "", "", "easy")
    assert rates.estimate(problem) == UNSEEN
    rates.learn([scored(problem, False)])
    assert rates.estimate(problem) == 1.0
    assert rates.estimate(neighbour) == 1.0  # of its difficulty
    rates.learn([scored(problem, True)])
    assert rates.estimate(problem) == FADING * 1.0 + (1 - FADING) * 0.5
    again = PassRates(json.loads(json.dumps(rates.state())))
    assert again.estimate(problem) == rates.estimate(problem)
    assert again.estimate(Problem("r", "", "", "hard")) == UNSEEN


def test_problems_are_drawn_by_what_they_can_teach() -> None:
    problems = [Problem(f"p{i}", "", "", "") for i in range(4)]
    rates = PassRates({"problem": {"p0": 0.5, "p1": 0.1, "p2": 1.0, "p3": 0.0}})
    first = Counter(rates.draw(problems, seed=0, step=step)[0] for step in range(4000))
    weights = [0.25, 0.09, 0.01, 0.01]
    for index, weight in enumerate(weights):
        assert first[index] / 4000 == pytest.approx(weight / sum(weights), abs=0.03)
    assert sorted(rates.draw(problems, 0, 1)) == [0, 1, 2, 3]
    assert rates.draw(problems, 0, 1) == rates.draw(problems, 0, 1)
