"""What lab/benchmarks/void_turns.py writes down of an update."""

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)


def group(least: list[float], outcomes: list[Outcome]) -> AdvantagedGroup:
    completions = tuple(
        Completion(
            index,
            np.array([50, 51]),
            np.float32([-0.1, math.log(value)]),
            np.float32([1.0, 1.0]),
            FinishReason.STOP,
            "x",
            np.array([True, True]),
        )
        for index, value in enumerate(least)
    )
    verdicts = tuple(Verdict(outcome, {"r": 0.0}, "") for outcome in outcomes)
    advantages = tuple(np.float32([1.0, 1.0]) for _ in least)
    scored = ScoredGroup(Group(Prompt(Problem("p", "?", "5"), "?", (40,)), completions, 0, 0), verdicts)
    return AdvantagedGroup(scored, advantages)


@pytest.mark.parametrize(("drops", "least"), [(False, 0.01), (True, 0.2)])
def test_the_least_probability_is_that_of_what_is_trained(
    drops: bool, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "lab" / "benchmarks"))
    looked_at = importlib.import_module("void_turns").looked_at
    groups = [
        group([0.5, 0.2], [Outcome.CORRECT, Outcome.WRONG]),
        group([0.3, 0.01], [Outcome.WRONG, Outcome.UNPARSABLE]),
    ]
    assert looked_at(groups, drops) == {"void": 0.25, "least probability": pytest.approx(least)}
