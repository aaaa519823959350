"""Groups that begin alike more often than chance has it are found, and chance is not taken for a fault."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from groupwise.errors import InvariantError
from groupwise.rollout.sample_and_score import FALSE_ALARM, _check_first_tokens
from groupwise.types import Completion, FinishReason, Group, Problem, Prompt


def group(first_tokens: Sequence[int], probability: float) -> Group:
    """Completions of one token each, which had this probability."""
    logprobs = np.log(np.array([probability], np.float32))
    completions = tuple(
        Completion(i, np.array([token]), logprobs, -logprobs, FinishReason.LENGTH, "")
        for i, token in enumerate(first_tokens)
    )
    return Group(Prompt(Problem("p", "", ""), "", (1,)), completions, 0, 0)


def test_the_bound_by_hand() -> None:
    # each group of 5 is worth 4 log 2 - log 2 = 3 log 2; 25 is passed by the thirteenth
    assert 12 * 3 * math.log(2) < FALSE_ALARM < 13 * 3 * math.log(2)
    _check_first_tokens([group([7] * 5, 0.5)] * 12)
    with pytest.raises(InvariantError, match=r"exp\(-27\) at most"):
        _check_first_tokens([group([7] * 5, 0.5)] * 13)


def test_one_group_is_enough_when_its_token_is_rare() -> None:
    with pytest.raises(InvariantError, match="not independent"):
        _check_first_tokens([group([7] * 4, 1e-4)])
    _check_first_tokens([group([7, 7, 7, 8], 1e-4)])


def test_a_sure_token_a_single_completion_and_no_group_are_no_surprise() -> None:
    _check_first_tokens([group([7] * 16, 1.0)] * 100)
    _check_first_tokens([group([7], 1e-9)] * 100)
    _check_first_tokens([])


@pytest.mark.parametrize("probability", [0.3, 0.9, 0.99])
def test_chance_is_far_from_an_alarm(probability: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        draws = (generator.random((8, 4)) < probability).astype(int)
        chances = np.where(draws[:, 0], probability, 1 - probability)
        _check_first_tokens([group(row, chance) for row, chance in zip(draws.tolist(), chances, strict=True)])
