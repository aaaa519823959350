"""Intervals by the bootstrap: the problems are drawn again, with replacement, and the figure computed of each draw.

Efron and Tibshirani 1993, "An Introduction to the Bootstrap", §13.3 (percentiles).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.randomness import key, uniforms

NUM_RESAMPLES = 2000


def resampled_weights(num_problems: int, seed: int = 0) -> NDArray[np.float64]:
    """Return (R, P) shares of the P problems in each resample; every row sums to 1."""
    numbers = uniforms(key("bootstrap", seed, num_problems), np.arange(NUM_RESAMPLES * num_problems))
    chosen = (numbers * num_problems).astype(np.int64).reshape(NUM_RESAMPLES, num_problems)
    cells = chosen + num_problems * np.arange(NUM_RESAMPLES)[:, None]
    counts = np.bincount(cells.ravel(), minlength=NUM_RESAMPLES * num_problems)
    return counts.reshape(NUM_RESAMPLES, num_problems) / num_problems


def bootstrap_share(values: Sequence[float], seed: int = 0) -> Estimate:
    """Return the mean over problems of shares in [0, 1] with its 95 % interval.

    Equal values leave nothing to resample, which is no certainty: there the interval is Wilson's.

    Args:
        values: (P,) one number for each problem.
        seed: of the resamples.
    """
    numbers = np.asarray(values, float)
    if len(numbers) < 2 or (numbers == numbers[0]).all():
        return mean_share(values)
    return _percentiles(float(numbers.mean()), resampled_weights(len(numbers), seed) @ numbers)


def bootstrap_difference(before: Sequence[float], after: Sequence[float], seed: int = 0) -> Estimate:
    """Return the mean of after - before over the same problems, 95 % interval; infinitely wide for fewer than two.

    Raises:
        ValueError: the problems are not the same.
    """
    if len(before) != len(after):
        raise ValueError(f"a paired difference of {len(before)} and {len(after)} problems: the same ones are allowed")
    differences = np.subtract(after, before)
    if len(differences) < 2:
        return Estimate(float(differences.mean()) if len(differences) else np.nan, -np.inf, np.inf)
    return _percentiles(float(differences.mean()), resampled_weights(len(differences), seed) @ differences)


def bootstrap_way(
    start: Sequence[float], reached: Sequence[float], end: Sequence[float], seed: int = 0
) -> Estimate | None:
    """Return the share (r - s) / (e - s) of the way from one mean to another, with its 95 % interval.

    All three are of the same problems. None where there is no way: e - s is not above 0 in 97.5 % of the resamples.
    """
    first, now, last = (np.asarray(values, float) for values in (start, reached, end))
    if len(first) < 2:
        return None
    weights = resampled_weights(len(first), seed)
    whole, done = weights @ (last - first), weights @ (now - first)
    if (whole <= 0).mean() > 0.025 or (last - first).mean() <= 0:
        return None
    ways = done[whole > 0] / whole[whole > 0]
    return _percentiles(float((now - first).mean() / (last - first).mean()), ways)


def _percentiles(value: float, resampled: NDArray[np.float64]) -> Estimate:
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Estimate(value, round(float(low), 12), round(float(high), 12))
