"""The best method for each difficulty, chosen on other problems than those it is measured on.

Snell et al. 2024 (arXiv:2408.03314, §3.2): problems are put into bins by difficulty, and in every bin each half of the
problems gets the method that is best on the other half. Without the two halves the best of several noisy figures would
be reported, which is too good.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import permutation

Ints = NDArray[np.int64]


def folds(num_problems: int, seed: int = 0) -> Ints:
    """Return (P,) 0 or 1: two random halves of the problems; their sizes differ by at most one."""
    result = np.zeros(num_problems, np.int64)
    result[permutation(num_problems, "folds", seed)[num_problems // 2 :]] = 1
    return result


def quantile_bins(values: Sequence[float], num_bins: int = 5) -> Ints:
    """Return the (P,) bin of each problem, about equally many in each, lowest values first; equal ones share a bin.

    >>> quantile_bins([0.1, 0.9, 0.5, 0.1], num_bins=2).tolist()
    [0, 1, 1, 0]
    """
    ordered = np.sort(np.asarray(values, float))
    rank = np.searchsorted(ordered, np.asarray(values, float), side="left")
    return np.asarray(rank * num_bins // max(1, len(ordered)), np.int64)


def absolute_bins(values: Sequence[float], num_bins: int = 5) -> Ints:
    """Return the (P,) bin of each share in [0, 1] by equally wide bounds; 1 belongs to the last bin.

    >>> absolute_bins([0.0, 0.2, 0.55, 1.0]).tolist()
    [0, 1, 2, 4]
    """
    return np.minimum((np.asarray(values, float) * num_bins + 1e-12).astype(np.int64), num_bins - 1)


def cross_fitted(accuracy: NDArray[np.float64], bins: Ints, fold: Ints) -> Ints:
    """Return the (P,) index of the method that every problem gets.

    In a bin a half of the problems gets the method with the highest mean accuracy over the other half's problems of
    this bin; where it has none there, the one that is best on the whole other half. The first of equal ones.

    Args:
        accuracy: (M, P) expected accuracy of each method on each problem, the cheapest method first.
        bins: (P,) difficulty of each problem.
        fold: (P,) half of each problem, 0 or 1.

    Raises:
        ValueError: the shapes differ, or one half is empty.
    """
    if accuracy.ndim != 2 or accuracy.shape[1:] != bins.shape or bins.shape != fold.shape:
        raise ValueError(f"accuracies of shape {accuracy.shape} for {bins.shape} bins and {fold.shape} halves")
    if not {0, 1} <= set(fold.tolist()):
        raise ValueError("both halves must have problems: at least 2 problems are needed")
    chosen = np.zeros(len(bins), np.int64)
    for half in (0, 1):
        for label in np.unique(bins[fold == half]):
            others = (fold != half) & (bins == label)
            if not others.any():
                others = fold != half
            chosen[(fold == half) & (bins == label)] = int(accuracy[:, others].mean(1).argmax())
    return chosen
