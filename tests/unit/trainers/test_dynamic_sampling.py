"""Refills: bounded, in order, and nothing is counted twice."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from groupwise.trainers.grpo import Refilled, refilled
from groupwise.trainers.report import Seconds, StepResult, step_report
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
