"""The rule of the claims ledger: by numbers worked by hand, and against slow loops."""

import math
import random
import statistics

import pytest
from groupwise_lab.claims.decision import MOST_SEEDS, Bounds, Ruling, bounds, decide, seeds_needed, slope

from groupwise.algorithms.statistics import T_95

INF = math.inf


@pytest.mark.parametrize(
    ("values", "claimed", "ruling"),
    [  # by hand: mean 3, s 1, t(2) = 4.303, so 3 ± 4.303 / √3 = 3 ± 2.4843
        ([2, 3, 4], Bounds(0.5, INF), Ruling.HOLDS),
        ([2, 3, 4], Bounds(0.6, INF), Ruling.OPEN),
        ([2, 3, 4], Bounds(5.5, INF), Ruling.FAILS),
        ([2, 3, 4], Bounds(5.4, INF), Ruling.OPEN),
        ([2, 3, 4], Bounds(-INF, 5.5), Ruling.HOLDS),
        ([2, 3, 4], Bounds(-INF, 0.5), Ruling.FAILS),
        ([2, 3, 4], Bounds(0.5, 5.5), Ruling.HOLDS),
        ([2, 3, 4], Bounds(2.5, 3.5), Ruling.OPEN),
        ([2, 3, 4], Bounds(-1, 0.5), Ruling.FAILS),
        ([2, 3, 4], Bounds(5.5, 6), Ruling.FAILS),
        ([1, 1, 1], Bounds(0, INF), Ruling.HOLDS),
        ([1, 1], Bounds(0, INF), Ruling.OPEN),
        ([7], Bounds(0, INF), Ruling.OPEN),
        ([], Bounds(0, INF), Ruling.OPEN),
    ],
)
def test_a_claim_holds_where_the_whole_interval_lies_in_it(
    values: list[float], claimed: Bounds, ruling: Ruling
) -> None:
    decision = decide(values, claimed)
    assert (decision.ruling, decision.num_seeds) == (ruling, len(values))
    if values == [2, 3, 4]:
        assert decision.estimate == pytest.approx((3, 0.5157, 5.4843), abs=1e-4)


@pytest.mark.parametrize(
    ("claimed", "inside", "outside"),
    [
        ("above", [0.11, 5], [0.1, 0.0, -0.2]),
        ("below", [-0.11, -5], [-0.1, 0.0, 0.2]),
        ("equal", [-0.09, 0, 0.09], [-0.1, 0.1, 1]),
        ("at_least", [-0.09, 0, 5], [-0.1, -0.2]),
        ("at_most", [0.09, 0, -5], [0.1, 0.2]),
    ],
)
def test_the_words_of_a_claim_are_sets_of_values(claimed: str, inside: list[float], outside: list[float]) -> None:
    low, high = bounds(claimed, 0.1)
    assert all(low < value < high for value in inside)
    assert not any(low < value < high for value in outside)


def test_seeds_needed_are_the_first_number_whose_interval_would_decide() -> None:
    rng = random.Random(0)
    for _ in range(200):
        values = [rng.gauss(0.3, 1) for _ in range(rng.randint(2, 6))]
        claimed = bounds(rng.choice(["above", "below", "equal", "at_least", "at_most"]), rng.choice([0.0, 0.2, 0.6]))
        mean, spread, found = statistics.fmean(values), statistics.stdev(values), None
        for n in range(3, MOST_SEEDS + 1):
            half = T_95[min(n - 2, len(T_95) - 1)] * spread / math.sqrt(n)
            low, high = mean - half, mean + half
            is_inside = claimed.low < low and high < claimed.high
            is_outside = high < claimed.low or low > claimed.high
            if is_inside or is_outside:
                found = n
                break
        assert seeds_needed(values, claimed) == found


def test_seeds_needed_by_hand() -> None:
    # mean 1, s 1: t s / √n < 1 for the first time at n = 7 (2.447 / 2.646 = 0.925; at n = 6 2.571 / 2.449 = 1.05)
    assert seeds_needed([0, 1, 2], Bounds(0, INF)) == 7
    assert seeds_needed([0, 0], Bounds(0, INF)) is None  # on the margin for ever
    assert seeds_needed([0.5], Bounds(0, INF)) is None
    assert decide([2, 3, 4], Bounds(0, INF)).seeds_needed is None  # decided


def test_a_slope_equals_the_sums_of_its_definition() -> None:
    points = {1.0: 0.3, 2.0: 0.1, 4.0: 0.9, 7.0: 0.2}
    x, y = list(points), list(points.values())
    n, sxy, sxx = len(x), sum(a * b for a, b in points.items()), sum(a * a for a in x)
    assert slope(points) == pytest.approx((n * sxy - sum(x) * sum(y)) / (n * sxx - sum(x) ** 2))
    with pytest.raises(ValueError, match="at least two sizes, got 1"):
        slope({1.0: 1.0})
