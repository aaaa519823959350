"""Advantages of whole completions: by hand, against loops written from the papers, and what each estimator claims."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.algorithms.advantages import ADVANTAGES, STD_EPS, AdvantageEstimator, advantage, step_advantages
from groupwise.errors import ConfigError

FEW = settings(max_examples=25)  # each of these tests runs for several estimators
Rewards = list[list[float]]
Parts = list[list[list[float]]]


# --- the papers' equations as loops; a step is a list of groups


def mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def std(numbers: Sequence[float], missing: int = 0) -> float:
    """Square root of the squared deviations over n - missing."""
    centre = mean(numbers)
    return math.sqrt(math.fsum((x - centre) ** 2 for x in numbers) / (len(numbers) - missing))


def every(rewards: Rewards) -> list[float]:
    return [reward for group in rewards for reward in group]


def slow_leave_one_out(group: list[float]) -> list[float]:
    found = []
    for i, reward in enumerate(group):
        others = [other for j, other in enumerate(group) if j != i]
        found.append(reward - mean(others) if others else 0.0)
    return found


def slow_sample(group: list[float]) -> list[float]:
    if len(group) == 1:
        return [0.0]
    return [(reward - mean(group)) / (std(group, missing=1) + 1e-4) for reward in group]


def slow_divided(group: list[float]) -> list[float]:
    return [(reward - mean(group)) / mean(group) if mean(group) else 0.0 for reward in group]


def slow_parts(rewards: Rewards, parts: Parts) -> Rewards:
    sums = []
    for group in parts:
        columns = [[row[k] for row in group] for k in range(len(group[0]))]
        scores = [[(x - mean(column)) / (std(column) + 1e-4) for x in column] for column in columns]
        sums.append([math.fsum(of_one) for of_one in zip(*scores, strict=True)])
    return [[(x - mean(every(sums))) / (std(every(sums)) + 1e-4) for x in group] for group in sums]


def within(formula: Callable[[list[float]], list[float]]) -> Callable[[Rewards, Parts], Rewards]:
    return lambda rewards, parts: [formula(group) for group in rewards]


SLOW: dict[str, Callable[[Rewards, Parts], Rewards]] = {
    "none": lambda rewards, parts: rewards,
    "batch_mean": lambda rewards, parts: [[r - mean(every(rewards)) for r in g] for g in rewards],
    "batch_normalised": lambda rewards, parts: [
        [(r - mean(every(rewards))) / (std(every(rewards)) + 1e-4) for r in g] for g in rewards
    ],
    "batch_std": lambda rewards, parts: [[(r - mean(g)) / (std(every(rewards)) + 1e-4) for r in g] for g in rewards],
    "group_mean": within(lambda g: [r - mean(g) for r in g]),
    "group_normalised": within(lambda g: [(r - mean(g)) / (std(g) + 1e-4) for r in g]),
    "group_normalised_sample": within(slow_sample),
    "leave_one_out": within(slow_leave_one_out),
    "divided_by_mean": within(slow_divided),
    "parts_normalised": slow_parts,
}

# --- two groups by hand: means 1/2 and 1/4, stds 1/2 and √3/4; of the eight together 3/8 and √15/8 = 0.48412

GROUPS = ([1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0])
PARTS = ([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [-1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
BY_HAND: dict[str, tuple[list[float], list[float]]] = {
    "none": ([1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]),
    "batch_mean": ([0.625, -0.375, -0.375, 0.625], [-0.375, -0.375, -0.375, 0.625]),
    "batch_normalised": ([1.29099, -0.77460, -0.77460, 1.29099], [-0.77460, -0.77460, -0.77460, 1.29099]),
    "batch_std": ([1.03280, -1.03280, -1.03280, 1.03280], [-0.51640, -0.51640, -0.51640, 1.54919]),
    "group_mean": ([0.5, -0.5, -0.5, 0.5], [-0.25, -0.25, -0.25, 0.75]),
    "group_normalised": ([1.0, -1.0, -1.0, 1.0], [-0.57735, -0.57735, -0.57735, 1.73205]),
    "group_normalised_sample": ([0.86603, -0.86603, -0.86603, 0.86603], [-0.5, -0.5, -0.5, 1.5]),
    "leave_one_out": ([0.66667, -0.66667, -0.66667, 0.66667], [-0.33333, -0.33333, -0.33333, 1.0]),
    "divided_by_mean": ([1.0, -1.0, -1.0, 1.0], [-1.0, -1.0, -1.0, 3.0]),
    # the second group's first part has mean 0 and std √2/2, its second mean 1/4 and std √3/4; the eight sums have
    # variance (4 + 1.46802) / 8
    "parts_normalised": ([1.20957, -1.20957, -1.20957, 1.20957], [-0.69835, 0.38445, -0.69835, 1.01224]),
}


class Claims(NamedTuple):
    """`group`: holds for each group on its own; `step`: for the step as a whole only; `no`: for neither."""

    sums_to_zero: str
    shift: str
    """Adding a number to all rewards changes nothing."""
    scale: str
    """Multiplying all rewards by a positive number changes nothing (up to STD_EPS)."""


CLAIMS: dict[str, Claims] = {
    "none": Claims("no", "no", "no"),
    "batch_mean": Claims("step", "step", "no"),
    "batch_normalised": Claims("step", "step", "step"),
    "batch_std": Claims("group", "step", "step"),
    "group_mean": Claims("group", "group", "no"),
    "group_normalised": Claims("group", "group", "group"),
    "group_normalised_sample": Claims("group", "group", "group"),
    "leave_one_out": Claims("group", "group", "no"),
    "divided_by_mean": Claims("group", "no", "group"),
    "parts_normalised": Claims("group", "group", "group"),
}
WITHIN = [name for name, claims in CLAIMS.items() if claims.sums_to_zero == "group"]
"""Those that compare within groups."""
OF_REWARDS = [name for name in ADVANTAGES.table if ADVANTAGES.find(name).reads not in ("steps", "tokens", "turns")]
ESTIMATORS = pytest.mark.parametrize("estimator", OF_REWARDS)


def claiming(field: str, *values: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("estimator", [name for name in CLAIMS if getattr(CLAIMS[name], field) in values])


def advantages(
    rewards: Sequence[Sequence[float | None]], estimator: str, parts: Sequence[Sequence[Sequence[float]]] | None = None
) -> list[tuple[float | None, ...]]:
    """Without parts every reward is its only one."""
    parts = parts or [[[reward or 0.0] for reward in group] for group in rewards]
    return step_advantages(rewards, parts, advantage(estimator))


def approx(groups: Sequence[Sequence[float | None]], tolerance: float = 1e-9) -> list[object]:
    return [pytest.approx(tuple(group), abs=tolerance, rel=tolerance) for group in groups]


QUARTERS = st.integers(0, 8).map(lambda n: n / 4)  # not negative, so that every estimator takes them
STEPS = st.lists(st.lists(QUARTERS, min_size=1, max_size=6), min_size=1, max_size=4)
SIGNALS = st.lists(
    st.lists(QUARTERS, min_size=2, max_size=6).filter(lambda group: len(set(group)) > 1), min_size=1, max_size=4
)


@pytest.mark.parametrize("proofs", [SLOW, BY_HAND, CLAIMS])
def test_every_estimator_has_its_proofs(proofs: dict[str, object]) -> None:
    assert list(proofs) == OF_REWARDS


@ESTIMATORS
def test_two_groups_by_hand(estimator: str) -> None:
    assert advantages(GROUPS, estimator, PARTS) == approx(BY_HAND[estimator], 6e-4)  # STD_EPS is left out by hand


@ESTIMATORS
@FEW
@given(data=st.data(), rewards=STEPS)
def test_equals_the_equation_as_a_loop(estimator: str, data: st.DataObject, rewards: Rewards) -> None:
    parts = [[[x, data.draw(QUARTERS) - 1] for x in group] for group in rewards]
    assert advantages(rewards, estimator, parts) == approx(SLOW[estimator](rewards, parts))


def test_five_of_eight_right() -> None:
    # mean 0.625, std sqrt(0.625 * 0.375) = 0.484
    (found,) = advantages([(1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0)], "group_normalised")
    right, wrong = 0.375 / (0.484123 + STD_EPS), -0.625 / (0.484123 + STD_EPS)
    assert found == pytest.approx([right, right, right, wrong, right, wrong, wrong, right], abs=1e-6)
    assert (round(right, 2), round(wrong, 2)) == (0.77, -1.29)


@pytest.mark.parametrize(
    ("estimator", "right", "wrong"), [("divided_by_mean", 7.0, -1.0), ("group_normalised", 2.65, -0.38)]
)
def test_one_success_of_eight(estimator: str, right: float, wrong: float) -> None:
    (found,) = advantages([(1.0, *[0.0] * 7)], estimator)
    assert found == pytest.approx([right, *[wrong] * 7], abs=0.006)


def test_the_standard_deviation_is_that_of_the_population() -> None:
    # std of 0, 1, 2 with denominator 3 is sqrt(2/3), with denominator 2 it is 1
    assert advantages([(0.0, 1.0, 2.0)], "group_normalised")[0][2] == pytest.approx(math.sqrt(1.5), abs=2e-4)
    assert advantages([(0.0, 1.0, 2.0)], "group_normalised_sample")[0][2] == pytest.approx(1.0, abs=2e-4)


def test_the_epsilon_is_small_beside_the_std_of_one_success_in_256() -> None:
    smallest = std([1.0] + [0.0] * 255)
    assert 0.06 < smallest < 0.07
    assert STD_EPS / smallest < 0.002


@ESTIMATORS
def test_a_failed_verdict_stays_none_and_changes_nobody_else(estimator: str) -> None:
    holes = advantages([(None, 1.0, None, 0.0, 1.0), (0.0, None, 2.0)], estimator)
    (a, b, c), (d, e) = advantages([(1.0, 0.0, 1.0), (0.0, 2.0)], estimator)
    assert holes == [(None, a, None, b, c), (d, None, e)]


@ESTIMATORS
def test_a_group_without_any_verdict_changes_nothing(estimator: str) -> None:
    (found,) = advantages([(1.0, 0.0)], estimator)
    assert advantages([(None, None), (1.0, 0.0), (), (None,)], estimator) == [(None, None), found, (), (None,)]
    assert advantages([(None, None)], estimator) == [(None, None)]
    assert advantages([], estimator) == []


@ESTIMATORS
def test_parts_of_a_failed_verdict_are_not_read(estimator: str) -> None:
    holes = advantages([(None, 1.0, 0.0)], estimator, [[[math.nan, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    assert holes == [(None, *advantages([(1.0, 0.0)], estimator)[0])]


@pytest.mark.parametrize("estimator", WITHIN)
@pytest.mark.parametrize("rewards", [(1.0,), (0.0, 0.0), (0.1, 0.1, 0.1), (0.7,) * 6, (1.0,) * 64])
@pytest.mark.parametrize("other", [[], [(0.3, 0.1, 1.0)]])
def test_equal_rewards_are_exactly_zero(estimator: str, rewards: tuple[float, ...], other: Rewards) -> None:
    assert advantages([rewards, *other], estimator)[0] == (0.0,) * len(rewards)


def test_the_bare_formulas_leave_the_rounding_of_the_mean() -> None:
    # why the estimators look for equal rewards first: divided by STD_EPS this is a signal
    assert advantage("group_mean").within(torch.tensor([0.1] * 3, dtype=torch.float64)).abs().max() > 0


@pytest.mark.parametrize("estimator", ["leave_one_out", "divided_by_mean"])
def test_nothing_to_divide_by_is_zero(estimator: str) -> None:
    assert advantage(estimator).within(torch.zeros(1)).tolist() == [0.0]
    assert advantage(estimator).within(torch.zeros(3)).tolist() == [0.0] * 3


@claiming("sums_to_zero", "group")
@FEW
@given(rewards=STEPS)
def test_advantages_sum_to_zero_in_every_group(estimator: str, rewards: Rewards) -> None:
    assert [sum(group) for group in advantages(rewards, estimator)] == pytest.approx([0] * len(rewards), abs=1e-9)


@claiming("sums_to_zero", "step")
@FEW
@given(rewards=STEPS)
def test_advantages_sum_to_zero_over_the_step(estimator: str, rewards: Rewards) -> None:
    assert sum(every(advantages(rewards, estimator))) == pytest.approx(0, abs=1e-9)


@claiming("sums_to_zero", "step", "no")
def test_where_groups_do_not_sum_to_zero(estimator: str) -> None:
    assert abs(sum(advantages(GROUPS, estimator)[1])) > 0.4


def shifted(rewards: Rewards, shifts: Sequence[float]) -> Rewards:
    return [[reward + shift for reward in group] for group, shift in zip(rewards, shifts, strict=True)]


@claiming("shift", "group")
@FEW
@given(data=st.data(), rewards=STEPS)
def test_adding_to_the_rewards_of_a_group_changes_nothing(
    estimator: str, data: st.DataObject, rewards: Rewards
) -> None:
    shifts = [data.draw(st.integers(-400, 400)) / 4 for _ in rewards]
    assert advantages(shifted(rewards, shifts), estimator) == approx(advantages(rewards, estimator), 1e-6)


@claiming("shift", "step")
@FEW
@given(rewards=STEPS, shift=st.integers(-400, 400).map(lambda n: n / 4))
def test_adding_to_all_rewards_of_a_step_changes_nothing(estimator: str, rewards: Rewards, shift: float) -> None:
    found = advantages(shifted(rewards, [shift] * len(rewards)), estimator)
    assert found == approx(advantages(rewards, estimator), 1e-6)


@claiming("shift", "step", "no")
def test_where_adding_to_rewards_changes_the_advantages_of_a_group(estimator: str) -> None:
    shifts = (1.0, float(CLAIMS[estimator].shift == "no"))  # of a step: what is added to the other group alone
    before, after = advantages(GROUPS, estimator), advantages(shifted(GROUPS, shifts), estimator)
    assert after[1] != pytest.approx(before[1], abs=0.1)


def scaled(rewards: Rewards, factors: Sequence[float]) -> Rewards:
    return [[reward * factor for reward in group] for group, factor in zip(rewards, factors, strict=True)]


@claiming("scale", "group")
@FEW
@given(data=st.data(), rewards=SIGNALS)
def test_scaling_a_group_changes_nothing_beyond_the_epsilon(
    estimator: str, data: st.DataObject, rewards: Rewards
) -> None:
    factors = [data.draw(st.floats(0.5, 50)) for _ in rewards]
    assert advantages(scaled(rewards, factors), estimator) == approx(advantages(rewards, estimator), 5e-3)


@claiming("scale", "step")
@FEW
@given(rewards=SIGNALS, factor=st.floats(0.5, 50))
def test_scaling_a_step_changes_nothing_beyond_the_epsilon(estimator: str, rewards: Rewards, factor: float) -> None:
    found = advantages(scaled(rewards, [factor] * len(rewards)), estimator)
    assert found == approx(advantages(rewards, estimator), 5e-3)


@claiming("scale", "step")
def test_where_scaling_one_group_changes_the_other(estimator: str) -> None:
    before, after = advantages(GROUPS, estimator), advantages(scaled(GROUPS, (4.0, 1.0)), estimator)
    assert after[1] != pytest.approx(before[1], abs=0.1)


@claiming("scale", "no")
@FEW
@given(rewards=STEPS, factor=st.floats(0.1, 50))
def test_where_scaling_the_rewards_scales_the_advantages(estimator: str, rewards: Rewards, factor: float) -> None:
    found = advantages(scaled(rewards, [factor] * len(rewards)), estimator)
    assert found == approx(scaled(advantages(rewards, estimator), [factor] * len(rewards)))


@ESTIMATORS
@FEW
@given(data=st.data(), rewards=STEPS)
def test_a_permutation_permutes_the_advantages(estimator: str, data: st.DataObject, rewards: Rewards) -> None:
    groups = data.draw(st.permutations(range(len(rewards))))
    orders = [data.draw(st.permutations(range(len(rewards[g])))) for g in groups]
    permuted = [[rewards[g][i] for i in order] for g, order in zip(groups, orders, strict=True)]
    before = advantages(rewards, estimator)
    expected = [[before[g][i] for i in order] for g, order in zip(groups, orders, strict=True)]
    assert advantages(permuted, estimator) == approx(expected)


@ESTIMATORS
@FEW
@given(rewards=STEPS)
def test_a_better_reward_is_never_a_smaller_advantage(estimator: str, rewards: Rewards) -> None:
    for group, found in zip(rewards, advantages(rewards, estimator), strict=True):
        ranked = [advantage for _, advantage in sorted(zip(group, found, strict=True))]
        assert ranked == sorted(ranked)


@pytest.mark.parametrize(
    ("estimator", "share"), [("none", 1.0), ("leave_one_out", 1.0), ("group_mean", 3 / 4), ("batch_mean", 7 / 8)]
)
def test_the_share_of_its_own_reward_that_the_baseline_leaves(estimator: str, share: float) -> None:
    # a baseline that holds r itself shrinks the expected gradient to this share; 1 is unbiased
    changed = [[3.0, *GROUPS[0][1:]], GROUPS[1]]
    before, after = advantages(GROUPS, estimator), advantages(changed, estimator)
    assert after[0][0] - before[0][0] == pytest.approx(2 * share)


@pytest.mark.parametrize("rewards", [(-1.0, 0.5), (-1.0, 1.0), (-1.0, 2.0), (-1.0, -2.0)])
def test_dividing_by_the_mean_refuses_negative_rewards(rewards: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"not negative, got -[12]$"):
        advantages([rewards], "divided_by_mean")


TWO_PARTS = [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [0.0, 0.0], [0.5, 1.0]]]


def of_parts(parts: Parts) -> list[tuple[float | None, ...]]:
    return step_advantages([[sum(row) for row in group] for group in parts], parts, advantage("parts_normalised"))


def weighted(parts: Parts, factor: float) -> Parts:
    return [[[first * factor, second] for first, second in group] for group in parts]


def test_normalised_parts_lose_their_weight_but_not_its_sign() -> None:
    assert of_parts(weighted(TWO_PARTS, 10.0)) == approx(of_parts(TWO_PARTS), 2e-3)
    assert of_parts(weighted(TWO_PARTS, -1.0)) != approx(of_parts(TWO_PARTS), 0.5)


def test_a_part_that_is_equal_in_a_group_says_nothing_there() -> None:
    extended = [[[*row, 0.1] for row in group] for group in TWO_PARTS]
    assert of_parts(extended) == of_parts(TWO_PARTS)


def test_a_single_normalised_part_is_the_group_normalised_reward() -> None:
    # the std over the step is then 1 up to STD_EPS
    assert advantages(GROUPS, "parts_normalised") == approx(advantages(GROUPS, "group_normalised"), 1e-3)


def test_rewards_without_parts_have_no_normalised_parts() -> None:
    assert step_advantages([(1.0, 0.0)], [[[], []]], advantage("parts_normalised")) == [(0.0, 0.0)]


def test_what_an_estimator_asks_for_is_said_by_its_class() -> None:
    found = {name: ADVANTAGES.find(name) for name in ADVANTAGES.table}
    assert [name for name, one in found.items() if not one.needs_rivals] == ["none", "batch_mean", "batch_normalised"]
    reads = {"parts_normalised": "parts", "group_tree": "tokens"}
    reads |= dict.fromkeys(("process", "process_gae", "process_min"), "steps")
    reads |= dict.fromkeys(("turn_return", "equal_state"), "turns")
    assert {name: one.reads for name, one in found.items() if one.reads != "reward"} == reads
    assert [name for name, one in found.items() if one.refuses_negative] == ["divided_by_mean"]
    assert [name for name, one in found.items() if one.needs_decided_ends] == ["process_gae"]
    assert all(name.replace("_", "") == one.__name__.lower() for name, one in found.items() if name != "none")


def test_without_a_kind_it_is_the_groups_mean_and_other_classes_are_none() -> None:
    assert ADVANTAGES.read({}) == advantage("group_mean")
    with pytest.raises(ConfigError, match="allowed is a class that builds on AdvantageEstimator"):
        advantage("groupwise.algorithms.policy_losses:Reinforce")


def test_an_estimator_without_its_method_is_named() -> None:
    with pytest.raises(ConfigError, match=r"advantage.kind = 'own' reads the reward, and has no method within$"):
        step_advantages([[0.0, 1.0]], [[[0.0], [1.0]]], AdvantageEstimator(kind="own"))
