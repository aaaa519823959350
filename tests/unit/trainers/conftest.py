"""Scored groups made by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

Score = Callable[[Problem, bool], ScoredGroup]


@pytest.fixture
def scored() -> Score:
    """scored(problem, has_signal) -> a group of two completions, three tokens each."""

    def make(problem: Problem, has_signal: bool) -> ScoredGroup:
        tokens = np.arange(3)
        zeros = np.zeros(3, np.float32)
        completions = tuple(Completion(i, tokens, zeros, zeros, FinishReason.STOP, "") for i in range(2))
        outcomes = (Outcome.CORRECT, Outcome.WRONG if has_signal else Outcome.CORRECT)
        verdicts = tuple(Verdict(one, {"accuracy": float(one is Outcome.CORRECT)}, "") for one in outcomes)
        return ScoredGroup(Group(Prompt(problem, "", (1,)), completions, 0, 0), verdicts)

    return make
