"""Groups without a signal, from a small sample: by hand, against every subset there is, and without bias."""

import math
from collections.abc import Sequence
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.learnability import Spread, fitted, flat_share, flat_share_of, smallest_difference

samples = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=3, max_size=7)


def by_listing(rewards: Sequence[Sequence[float]], size: int) -> float:
    """The share of flat groups among all subsets of each problem's samples, one problem like the other."""
    shares = []
    for own in rewards:
        groups = list(combinations(own, size))
        shares.append(sum(1 for group in groups if max(group) == min(group)) / len(groups))
    return sum(shares) / len(shares)


@given(rewards=st.lists(samples, min_size=1, max_size=4), size=st.integers(1, 3))
def test_it_is_the_share_among_all_subsets(rewards: list[list[float]], size: int) -> None:
    assert flat_share(rewards, size) == pytest.approx(by_listing(rewards, size), abs=1e-12)


def test_by_hand() -> None:
    # 3 of 4 right: of 6 pairs 3 are right, right; 4 of 4 wrong: all are flat. (3/6 + 1) / 2
    assert flat_share([[1, 1, 1, 0], [0, 0, 0, 0]], 2) == 0.75
    # at the mean pass rate 3/8 it would be (3/8)² + (5/8)² = 34/64
    assert flat_share([[1, 1, 1, 0], [0, 0, 0, 0]], 2) > 34 / 64


@given(p=st.floats(0, 1), size=st.integers(1, 4))
def test_it_has_no_bias(p: float, size: int) -> None:
    n = 4
    expected = sum(
        math.prod(p if r else 1 - p for r in draws) * flat_share([draws], size) for draws in product((0, 1), repeat=n)
    )
    assert expected == pytest.approx(p**size + (1 - p) ** size if size > 0 else 1, abs=1e-9)


@given(counts=st.lists(st.integers(0, 6), min_size=2, max_size=8))
def test_the_fit_says_of_pairs_what_the_count_says(counts: list[int]) -> None:
    rewards = [[1.0] * c + [0.0] * (6 - c) for c in counts]
    spread = fitted(counts, [6] * len(counts))
    if not math.isinf(spread.concentration) and spread.concentration > 0:
        assert flat_share_of(spread, 2) == pytest.approx(flat_share(rewards, 2), abs=1e-9)


@given(mean=st.floats(0.05, 0.95), concentration=st.floats(0.1, 50), size=st.integers(1, 12))
def test_larger_groups_are_flat_less_often_and_never_less_than_alike_problems_are(
    mean: float, concentration: float, size: int
) -> None:
    spread = Spread(mean, concentration)
    assert flat_share_of(spread, size + 1) <= flat_share_of(spread, size) + 1e-12
    assert flat_share_of(spread, size) >= flat_share_of(Spread(mean, math.inf), size) - 1e-12


def test_the_beta_distribution_by_hand() -> None:
    # a = b = 1 is uniform: E[p³] + E[(1 - p)³] = 1/4 + 1/4
    assert flat_share_of(Spread(0.5, 2.0), 3) == pytest.approx(0.5)
    assert flat_share_of(Spread(0.3, 0.0), 8) == 1.0
    assert flat_share_of(Spread(0.3, math.inf), 2) == pytest.approx(0.09 + 0.49)
    # c = 3, 1 of 4: E[p] = 1/2, E[p²] = (6/12 + 0) / 2 = 1/4, no more than of alike problems
    assert fitted([3, 1], [4, 4]).concentration == math.inf
    # c = 4, 0 and 2 of 4: E[p] = 1/2, E[p²] = (1 + 0 + 2/12) / 3 = 7/18; (1/2 - 7/18) / (7/18 - 1/4) = 0.8
    assert fitted([4, 0, 2], [4, 4, 4]) == (0.5, pytest.approx(0.8))


def test_what_dev_can_resolve_falls_with_the_root_of_its_size() -> None:
    one = smallest_difference([2, 1], [4, 4], 100, 4)
    # within: (2·2 + 1·3) / (2·12) = 7/24; z(0.975) = 1.95996, z(0.8) = 0.84162
    assert one == pytest.approx((1.95996 + 0.84162) * math.sqrt(2 * (7 / 24) / 400), rel=1e-5)
    assert smallest_difference([2, 1], [4, 4], 400, 4) == pytest.approx(one / 2)
    assert smallest_difference([4, 0], [4, 4], 100, 4) == 0.0


def test_too_few_samples_are_refused() -> None:
    for rewards, size in (([[1, 0, 1, 0]], 0), ([[1, 0, 1, 0]], 5), ([[1, 0, 1, 0], [1]], 2)):
        with pytest.raises(ValueError, match="too few samples"):
            flat_share(rewards, size)
    for correct, samples in (([], []), ([1], [1]), ([2, 1], [4, 1])):
        for ask in (fitted, lambda *counts: smallest_difference(*counts, 1, 1)):
            with pytest.raises(ValueError, match="two samples"):
                ask(correct, samples)
            with pytest.raises(ValueError, match="longer"):  # two are enough, but for each
                ask([1], [2, 2])
