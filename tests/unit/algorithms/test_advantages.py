"""Advantages: worked by hand, and the properties every estimator must have."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from groupwise.algorithms.advantages import ADVANTAGES, STD_EPS, group_advantages

REWARDS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=2, max_size=16)
ESTIMATORS = pytest.mark.parametrize("estimator", sorted(ADVANTAGES))


def test_worked_example_normalised() -> None:
    # 5 of 8 right: mean 0.625, std sqrt(0.625 * 0.375) = 0.484
    advantages = group_advantages((1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0), "group_normalised")
    right, wrong = 0.375 / (0.48412 + STD_EPS), -0.625 / (0.48412 + STD_EPS)
    assert advantages == pytest.approx([right, right, right, wrong, right, wrong, wrong, right], abs=1e-4)
    assert round(right, 2) == 0.77
    assert round(wrong, 2) == -1.29


def test_worked_example_mean() -> None:
    advantages = group_advantages((1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0), "group_mean")
    assert advantages == pytest.approx([0.375, 0.375, 0.375, -0.625, 0.375, -0.625, -0.625, 0.375], abs=1e-12)


def test_the_standard_deviation_is_that_of_the_population() -> None:
    # std of 0, 1, 2 with denominator 3 is sqrt(2/3), with denominator 2 it would be 1
    assert group_advantages((0.0, 1.0, 2.0), "group_normalised")[2] == pytest.approx(math.sqrt(1.5), abs=2e-4)


@ESTIMATORS
def test_a_failed_verdict_stays_none_and_changes_nobody_else(estimator: str) -> None:
    with_none = group_advantages((None, 1.0, None, 0.0, 1.0), estimator)
    without = group_advantages((1.0, 0.0, 1.0), estimator)
    assert with_none == (None, without[0], None, without[1], without[2])


@ESTIMATORS
def test_a_group_without_any_verdict_has_no_advantages(estimator: str) -> None:
    assert group_advantages((None, None), estimator) == (None, None)


@ESTIMATORS
@pytest.mark.parametrize("rewards", [(1.0,), (0.0, 0.0), (0.1, 0.1, 0.1), (1.0,) * 64])
def test_equal_rewards_teach_nothing(estimator: str, rewards: tuple[float, ...]) -> None:
    assert group_advantages(rewards, estimator) == pytest.approx([0.0] * len(rewards), abs=1e-10)


@ESTIMATORS
@given(rewards=REWARDS)
def test_advantages_sum_to_zero(estimator: str, rewards: list[float]) -> None:
    assert sum(group_advantages(rewards, estimator)) == pytest.approx(0, abs=1e-9)


@ESTIMATORS
@given(rewards=REWARDS, shift=st.floats(-100, 100))
def test_adding_to_every_reward_changes_nothing(estimator: str, rewards: list[float], shift: float) -> None:
    shifted = group_advantages([reward + shift for reward in rewards], estimator)
    assert shifted == pytest.approx(group_advantages(rewards, estimator), abs=1e-6)


@given(rewards=REWARDS, scale=st.floats(0.5, 50))
def test_scaling_changes_normalised_advantages_only_by_the_epsilon(rewards: list[float], scale: float) -> None:
    assume(len(set(rewards)) > 1)
    scaled = group_advantages([reward * scale for reward in rewards], "group_normalised")
    assert scaled == pytest.approx(group_advantages(rewards, "group_normalised"), rel=0.01)


@given(rewards=REWARDS, scale=st.floats(-50, 50))
def test_scaling_scales_mean_advantages(rewards: list[float], scale: float) -> None:
    scaled = group_advantages([reward * scale for reward in rewards], "group_mean")
    assert scaled == pytest.approx([scale * a for a in group_advantages(rewards, "group_mean")], abs=1e-9)


@ESTIMATORS
@given(data=st.data(), rewards=REWARDS)
def test_a_permutation_permutes_the_advantages(estimator: str, data: st.DataObject, rewards: list[float]) -> None:
    order = data.draw(st.permutations(range(len(rewards))))
    permuted = group_advantages([rewards[i] for i in order], estimator)
    advantages = group_advantages(rewards, estimator)
    assert permuted == pytest.approx([advantages[i] for i in order], abs=1e-9)


@ESTIMATORS
@given(rewards=REWARDS)
def test_a_better_reward_is_never_a_smaller_advantage(estimator: str, rewards: list[float]) -> None:
    advantages = group_advantages(rewards, estimator)
    ranked = [advantage for _, advantage in sorted(zip(rewards, advantages, strict=True))]
    assert ranked == sorted(ranked)
