"""Evaluation statistics: against brute force, closed forms and simulation."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from groupwise.algorithms.statistics import (
    T_95,
    Z_95,
    Estimate,
    bootstrap_difference,
    bootstrap_share,
    bootstrap_way,
    majority_at_k,
    majority_of,
    mean_over_seeds,
    mean_share,
    paired_difference,
    pass_at_k,
    resampled_weights,
)


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_equals_the_enumeration_of_all_draws(n: int) -> None:
    for correct in range(n + 1):
        for k in range(1, n + 1):
            draws = list(combinations(range(n), k))
            passed = sum(any(sample < correct for sample in draw) for draw in draws)
            assert pass_at_k(n, correct, k) == pytest.approx(passed / len(draws), abs=1e-12)


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    assert pass_at_k(10_000, 5_000, 5_000) == pytest.approx(1.0)


@pytest.mark.parametrize(("n", "correct", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0), (0, 0, 1)])
def test_impossible_counts_are_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(n, correct, k)


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The interval as the solution of (p - share)² = z² p (1 - p) / n."""
    share, z2 = successes / n, Z_95**2
    a, b, c = 1 + z2 / n, -(2 * share + z2 / n), share**2
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


def test_one_sample_per_problem_gives_the_wilson_interval() -> None:
    # shares of 0 and 1 spread so much that the effective size would be n - 1; n is the least that is taken
    assert mean_share([1.0] * 7 + [0.0] * 3) == pytest.approx((0.7, *wilson(7, 10)))
    # variance of the shares 0.02, of their mean 0.01: as uncertain as 0.25 / 0.01 = 25 samples
    assert mean_share([0.4, 0.6]) == pytest.approx((0.5, *wilson(12.5, 25)))
    assert all(math.isnan(value) for value in mean_share([]))


@pytest.mark.parametrize(("share", "n"), [(1.0, 5), (0.0, 12), (1.0, 1)])
def test_unanimous_problems_still_have_an_interval(share: float, n: int) -> None:
    estimate = mean_share([share] * n)
    assert estimate.value == share
    low, high = wilson(share * n, n)
    assert (estimate.low, estimate.high) == pytest.approx((max(0, low), min(1, high)), abs=1e-9)
    assert estimate.high - estimate.low > 0.1


def test_many_samples_per_problem_narrow_the_interval_to_the_spread_between_problems() -> None:
    shares = [0.45, 0.55] * 50
    estimate = mean_share(shares)
    half = Z_95 * np.std(shares, ddof=1) / 10
    assert (estimate.high - estimate.low) / 2 == pytest.approx(half, rel=0.01)


@pytest.mark.parametrize("n", range(1, 40))
def test_an_end_of_the_scale_is_met_exactly(n: int) -> None:
    assert mean_share([1.0] * n).high == 1
    assert mean_share([0.0] * n).low == 0


@pytest.mark.parametrize(
    "estimate", [mean_share([0.5, 0.75]), paired_difference([0.0, 0.5], [0.5, 0.75]), mean_over_seeds([0.5, 0.75])]
)
def test_estimates_are_plain_numbers(estimate: Estimate) -> None:
    assert [type(number) for number in estimate] == [float] * 3


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_interval_lies_in_the_unit_interval_and_around_the_mean(shares: list[float]) -> None:
    estimate = mean_share(shares)
    assert 0 <= estimate.low <= estimate.value + 1e-9
    assert estimate.value - 1e-9 <= estimate.high <= 1


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        difficulty = generator.beta(2, 3, size=60)
        estimate = mean_share((generator.binomial(4, difficulty) / 4).tolist())
        covered += estimate.low <= 0.4 <= estimate.high
    assert 0.92 <= covered / 1000 <= 0.98


def test_paired_difference_by_hand() -> None:
    # differences 0.5, 0, 0.25, 0.25: mean 0.25, std sqrt(0.125 / 3)
    estimate = paired_difference([0.0, 0.5, 0.25, 0.5], [0.5, 0.5, 0.5, 0.75])
    half = Z_95 * math.sqrt(0.125 / 3) / 2
    assert estimate == pytest.approx((0.25, 0.25 - half, 0.25 + half))
    # differences 0 and 1: std sqrt(1/2), of their mean 1/2
    assert paired_difference([0.0, 0.0], [0.0, 1.0]) == pytest.approx((0.5, 0.5 - Z_95 / 2, 0.5 + Z_95 / 2))


def test_paired_difference_of_one_problem_none_or_others() -> None:
    assert math.isnan(paired_difference([], []).value)
    assert paired_difference([0.0], [1.0]) == Estimate(1.0, -math.inf, math.inf)
    with pytest.raises(ValueError, match="got 2 and 1"):
        paired_difference([0.0, 1.0], [1.0])


def beyond(quantile: float, freedom: int) -> float:
    """Chance that Student's t of so many degrees of freedom lies beyond ± the quantile: Simpson's rule."""
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    steps = 2000
    heights = [(1 + (quantile * i / steps) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(steps + 1)]
    inner = heights[0] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2]) + heights[-1]
    return 1 - 2 * scale * inner * quantile / steps / 3


@pytest.mark.parametrize("freedom", range(1, 31))
def test_the_quantiles_are_students(freedom: int) -> None:
    assert len(T_95) == 30
    assert math.erf(Z_95 / math.sqrt(2)) == pytest.approx(0.95, abs=1e-12)
    assert beyond(T_95[freedom - 1] - 0.0006, freedom) > 0.05 > beyond(T_95[freedom - 1] + 0.0006, freedom)


def test_mean_over_seeds_by_hand() -> None:
    # deviations -1, 0 and 1: std 1, two degrees of freedom
    half = 4.303 / math.sqrt(3)
    assert mean_over_seeds([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - half, 2.0 + half), abs=1e-9)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=40))
def test_mean_over_seeds_equals_its_loop(values: list[float]) -> None:
    mean = math.fsum(values) / len(values)
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1))
    half = T_95[min(len(values), 31) - 2] * std / math.sqrt(len(values))
    assert mean_over_seeds(values) == pytest.approx((mean, mean - half, mean + half), abs=1e-9)


def test_one_run_knows_nothing_of_its_spread() -> None:
    assert mean_over_seeds([0.5]) == Estimate(0.5, -math.inf, math.inf)
    nothing = mean_over_seeds([])
    assert math.isnan(nothing.value)
    assert nothing[1:] == (-math.inf, math.inf)


def test_equal_runs_have_an_interval_of_a_point() -> None:
    assert mean_over_seeds([0.1] * 3) == Estimate(0.1, 0.1, 0.1)  # rounding of mean and spread is cut off


@pytest.mark.parametrize(
    ("right", "wrong", "abstained", "k", "expected"),
    [
        ([2], [1], 0, 3, 1.0),
        ([1], [2], 0, 3, 0.0),
        ([1], [1], 0, 2, 1 / 2),  # a tie of two
        ([2], [2, 2], 3, 9, 1 / 3),  # a tie of three; who has no answer has no vote
        ([2, 2], [2], 0, 6, 2 / 3),  # two right answers of three
        ([2], [1], 0, 1, 2 / 3),  # one vote: pass@1
        # of the pairs aa, ab, ab, ac, ac, bc: 1, 1/2 four times, 0
        ([2], [1, 1], 0, 2, (1 + 4 / 2) / 6),
        # of the pairs aa, a- four times, --: all but the last
        ([2], [], 2, 2, 5 / 6),
        # triples of aabb- (10): aab 2 and a-a 1 win, abb 2 and b-b 1 lose, ab- 4 are ties
        ([2], [2], 1, 3, (2 + 1 + 4 / 2) / 10),
        ([], [3], 1, 2, 0.0),
        ([], [], 2, 2, 0.0),
    ],
)
def test_a_majority_worked_by_hand(right: list[int], wrong: list[int], abstained: int, k: int, expected: float) -> None:
    found = majority_at_k(right, wrong, abstained, k)
    assert isinstance(found, float)
    assert found == pytest.approx(expected, abs=1e-15)


CLASSES = st.lists(st.integers(1, 3), max_size=3)


@given(CLASSES, CLASSES, st.integers(0, 2), st.data())
def test_a_majority_is_the_mean_over_all_subsets(
    right: list[int], wrong: list[int], abstained: int, data: st.DataObject
) -> None:
    sizes = [*right, *wrong]
    samples = [name for name, size in enumerate(sizes) for _ in range(size)][:9] + [None] * abstained
    assume(samples)
    present = Counter(name for name in samples if name is not None)
    k = data.draw(st.integers(1, len(samples)))
    accuracies = []
    for subset in combinations(samples, k):
        votes = Counter(name for name in subset if name is not None)
        winners = [name for name in votes if votes[name] == max(votes.values())]
        accuracies.append(sum(name < len(right) for name in winners) / len(winners) if winners else 0.0)
    found = majority_at_k(
        [count for name, count in present.items() if name < len(right)],
        [count for name, count in present.items() if name >= len(right)],
        abstained,
        k,
    )
    assert found == pytest.approx(sum(accuracies) / len(accuracies), abs=1e-12)


@pytest.mark.parametrize(
    ("right", "wrong", "abstained", "k"), [([1], [1], 0, 3), ([1], [], 0, 0), ([0], [1], 0, 1), ([1], [1], -1, 1)]
)
def test_a_majority_of_more_than_there_is_refused(right: list[int], wrong: list[int], abstained: int, k: int) -> None:
    with pytest.raises(ValueError, match="must hold"):
        majority_at_k(right, wrong, abstained, k)


def test_an_estimate_reads_as_value_and_interval() -> None:
    assert str(Estimate(0.5, 0.4, 0.6)) == "0.500 [0.400, 0.600]"


@pytest.mark.parametrize(("k", "expected"), [(1, 2 / 5), (5, 0.5)])
def test_answers_are_counted_and_right_where_any_sample_is(k: int, expected: float) -> None:
    answers = ["4", "5", "4", "5", None]
    assert majority_of(answers, [False, False, True, False, False], k) == pytest.approx(expected)


SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


def test_every_resample_has_as_many_problems_as_there_are() -> None:
    weights = resampled_weights(7, seed=3)
    assert weights.shape == (2000, 7)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert set(np.rint(7 * weights).ravel()) <= set(range(8))
    np.testing.assert_allclose(weights.mean(0), 1 / 7, atol=0.01)  # no problem is preferred
    assert (resampled_weights(7, seed=3) == weights).all()
    assert (resampled_weights(7, seed=4) != weights).any()


@settings(max_examples=20, deadline=None)
@given(SHARES)
def test_the_interval_is_of_resampled_means(values: list[float]) -> None:
    found = bootstrap_share(values)
    if min(values) == max(values):
        assert found == mean_share(values)
        return
    means = sorted(sum(w * v for w, v in zip(row, values, strict=True)) for row in resampled_weights(len(values)))
    assert found.value == pytest.approx(np.mean(values))
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=1e-9)
    assert found.high == pytest.approx(np.quantile(means, 0.975), abs=1e-9)


def test_an_interval_over_many_problems_is_the_normal_one() -> None:
    values = [float(i % 4 == 0) for i in range(400)]
    half = 1.96 * np.std(values) / 20
    found = bootstrap_share(values)
    assert found.high - found.value == pytest.approx(half, rel=0.1)
    assert found.value - found.low == pytest.approx(half, rel=0.1)


@given(SHARES, st.floats(-0.5, 0.5))
def test_the_same_difference_everywhere_is_certain(values: list[float], shift: float) -> None:
    found = bootstrap_difference(values, [value + shift for value in values])
    assert found == pytest.approx((shift, shift, shift), abs=1e-9)


def test_a_difference_has_a_sign_and_its_problems() -> None:
    found = bootstrap_difference([0.1, 0.2, 0.6], [0.4, 0.4, 0.7])
    assert found.value == pytest.approx(0.2)
    assert 0 < found.low < 0.2 < found.high
    assert bootstrap_difference([0.5], [1.0]).high == np.inf
    with pytest.raises(ValueError, match="2 and 1 problems"):
        bootstrap_difference([0.1, 0.2], [0.3])


def test_the_way_that_is_covered() -> None:
    found = bootstrap_way([0.2, 0.4, 0.0], [0.5, 0.7, 0.3], [0.8, 1.0, 0.6])
    assert found == pytest.approx((0.5, 0.5, 0.5))
    assert bootstrap_way([0.5, 0.5], [0.7, 0.4], [0.5, 0.5]) is None  # there is no way to go
    assert bootstrap_way([0.5, 0.1], [0.7, 0.4], [0.1, 0.6]) is None  # nobody knows whether there is one
    assert bootstrap_way([0.5], [0.7], [0.9]) is None
