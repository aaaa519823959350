"""Problems of a step; and refills: bounded, in order, and nothing is counted twice."""

import json
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from groupwise.trainers.grpo import Refilled, refilled
from groupwise.trainers.report import Seconds, StepResult, step_report
from groupwise.trainers.rl_run import FADING, UNSEEN, PassRates, problem_order
from groupwise.training.update import UpdateMetrics
from groupwise.types import AdvantagedGroup, Problem, ScoredGroup

Score = Callable[[Problem, bool], ScoredGroup]


def problems(names: str) -> list[Problem]:
    """One problem a letter; capitals have signal."""
    return [Problem(name, "", "") for name in names]


class Sampler:
    def __init__(self, scored: Score) -> None:
        self.scored = scored
        self.asked: list[str] = []

    def __call__(self, chosen: Sequence[Problem]) -> list[ScoredGroup]:
        self.asked.append("".join(problem.id for problem in chosen))
        return [self.scored(problem, problem.id.isupper()) for problem in chosen]


def sampled(sampler: Sampler, first: str, spare: str, refills: int) -> Refilled:
    return refilled(sampler, problems(first), problems(spare), refills)


@pytest.mark.parametrize(
    ("first", "spare", "refills", "asked", "kept"),
    [
        ("AbCd", "EFgh", 0, ["AbCd"], "AbCd"),  # no refill: the groups as they came
        ("ABCD", "EF", 3, ["ABCD"], "ABCD"),  # nothing to replace
        ("AbCd", "EFgh", 3, ["AbCd", "EF"], "ACEF"),
        ("AbCd", "eFGh", 3, ["AbCd", "eF", "G"], "ACFG"),
        ("AbCd", "eFGh", 1, ["AbCd", "eF"], "ACFb"),  # the bound leaves one without signal
        ("abcd", "ef", 9, ["abcd", "ef"], "abcd"),  # spare problems run out
    ],
)
def test_rounds(first: str, spare: str, refills: int, asked: list[str], kept: str, scored: Score) -> None:
    sampler = Sampler(scored)
    rounds = sampled(sampler, first, spare, refills)
    assert sampler.asked == asked
    assert ["".join(ids) for ids in rounds.problems] == asked
    assert "".join(group.group.prompt.problem.id for group in rounds.kept) == kept
    assert "".join(group.group.prompt.problem.id for group in rounds.sampled) == "".join(asked)


def test_what_was_sampled_is_counted_whole(scored: Score) -> None:
    rounds = sampled(Sampler(scored), "Ab", "C", 1)
    groups = [AdvantagedGroup(group, (np.zeros(3), np.zeros(3))) for group in rounds.kept]
    update = UpdateMetrics(**dict.fromkeys(UpdateMetrics._fields, 0))
    report = step_report(0, 1, StepResult(groups, update, Seconds(1, 1, 1, 1), rounds.problems, rounds.sampled), lr=0)
    assert report.sampled_tokens == 3 * 2 * 3
    assert (report.sampled_groups, report.refilled_groups) == (3, 1)
    assert report.correct == 1 / 2
    assert report.sampled_correct == pytest.approx((1 + 2 + 1) / 6)  # of the kept ones alone it would be one half


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
