"""The best method for each bin, chosen on the other half: by hand, and against a slow loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.pools import absolute_bins, cross_fitted, folds, quantile_bins


def test_by_hand() -> None:
    # method 0 wins on the easy problems of half 0, method 1 on those of half 1; each half gets the other's winner
    accuracy = np.array([[0.9, 0.9, 0.1, 0.1], [0.2, 0.2, 0.8, 0.8]])
    bins, half = np.zeros(4, np.int64), np.array([0, 0, 1, 1])
    assert cross_fitted(accuracy, bins, half).tolist() == [1, 1, 0, 0]
    # problem 0 is alone in its bin: it gets what is best on the whole other half
    assert cross_fitted(accuracy, np.array([1, 0, 0, 0]), half).tolist() == [1, 1, 0, 0]


@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_it_is_the_slow_loop(num_problems: int, num_methods: int, num_bins: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    accuracy = draw.integers(0, 4, (num_methods, num_problems)) / 3
    bins, half = draw.integers(0, num_bins, num_problems), folds(num_problems, seed)
    chosen = cross_fitted(accuracy, bins, half)
    for problem in range(num_problems):
        others = [p for p in range(num_problems) if half[p] != half[problem]]
        alike = [p for p in others if bins[p] == bins[problem]] or others
        means = [sum(row[p] for p in alike) / len(alike) for row in accuracy]
        assert means[chosen[problem]] == pytest.approx(max(means))


def test_the_half_that_is_measured_chooses_nothing() -> None:
    accuracy = np.array([[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0]])
    bins, half = np.zeros(4, np.int64), np.array([0, 0, 1, 1])
    before = cross_fitted(accuracy, bins, half)[2:]
    accuracy[:, 2:] = [[0.0, 0.0], [9.0, 9.0]]
    assert (cross_fitted(accuracy, bins, half)[2:] == before).all()


def test_halves_and_bins() -> None:
    assert sorted(folds(5).tolist()) == [0, 0, 1, 1, 1]
    assert (folds(9, 1) != folds(9, 2)).any()
    assert quantile_bins([0.0] * 10).tolist() == [0] * 10
    assert np.bincount(quantile_bins(np.arange(10).tolist())).tolist() == [2] * 5
    assert absolute_bins([0.0, 0.19, 0.2, 0.6, 0.999, 1.0]).tolist() == [0, 0, 1, 3, 4, 4]


def test_what_cannot_be_chosen_is_named() -> None:
    zeros = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="both halves"):
        cross_fitted(np.zeros((1, 2)), zeros, zeros)
    with pytest.raises(ValueError, match="shape"):
        cross_fitted(np.zeros((1, 3)), zeros, zeros)
