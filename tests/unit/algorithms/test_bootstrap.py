"""Resampled intervals: by hand, against a slow loop, and what must hold anyway."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.algorithms.statistics import (
    bootstrap_difference,
    bootstrap_share,
    bootstrap_way,
    mean_share,
    resampled_weights,
)

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
