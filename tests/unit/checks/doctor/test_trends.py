"""Statistics against hand-worked numbers, and against counting every case."""

from itertools import permutations
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.checks.doctor import trends

VALUES = st.lists(st.integers(-5, 5).map(float), min_size=4, max_size=12)


def test_slope_by_hand() -> None:
    # slopes of the pairs of 1, 2, 9: 1, 4, 7
    assert trends.slope([1.0, 2.0, 9.0]) == 4.0
    assert trends.slope([3.0]) == 0.0
    assert trends.slope([0.25 * i for i in range(1000)]) == pytest.approx(0.25)  # of a long line, by its blocks


@given(VALUES)
def test_slope_is_the_median_of_all_pairs(values: list[float]) -> None:
    slopes = [(values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(len(values)) if i < j]
    assert trends.slope(values) == median(slopes)


def test_mann_kendall_by_hand() -> None:
    # n = 5, all ten pairs rise: S = 10, variance 5 * 4 * 15 / 18 = 16.67, z = 9 / 4.082 = 2.2045, p = 0.01374
    assert trends.rises([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(0.01374, abs=1e-5)
    # one tie of two: S = 9, variance (300 - 2 * 1 * 9) / 18 = 15.667, z = 8 / 3.958 = 2.0211, p = 0.02163
    assert trends.rises([1.0, 2.0, 2.0, 3.0, 4.0]) == pytest.approx(0.02163, abs=1e-5)


def test_mann_kendall_is_near_the_exact_distribution() -> None:
    """The exact p-value: among all orders of the values, the share with as many rising pairs."""

    def score(values: tuple[float, ...]) -> int:
        return sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])

    values = (1.0, 3.0, 2.0, 5.0, 4.0, 6.0, 7.0)
    scores = [score(order) for order in permutations(values)]
    exact = sum(one >= score(values) for one in scores) / len(scores)
    assert trends.rises(values) == pytest.approx(exact, abs=0.005)


@given(VALUES)
def test_what_rises_falls_backwards(values: list[float]) -> None:
    assert trends.rises(values) == pytest.approx(trends.falls(values[::-1]))


def test_nothing_is_proved_by_three_values_or_by_equal_ones() -> None:
    assert trends.rises([1.0, 2.0, 3.0]) == 1.0
    assert trends.rises([2.0] * 20) == 1.0


@given(VALUES)
def test_rank_correlation_with_itself(values: list[float]) -> None:
    assert trends.rank_correlation(values, values) == pytest.approx(float(len(set(values)) > 1))


@pytest.mark.parametrize(("worse", "better", "p"), [(5, 0, 1 / 32), (3, 1, 5 / 16), (0, 3, 1.0), (0, 0, 1.0)])
def test_sign_test_by_hand(worse: int, better: int, p: float) -> None:
    assert trends.sign_test(worse, better) == p
