"""Statistics of evaluations: pass@k, majority vote, and the intervals that belong to every number.

The bootstrap draws the problems again, with replacement, and computes the figure of each draw: Efron and Tibshirani
1993, "An Introduction to the Bootstrap", §13.3 (percentiles).
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import key, uniforms

Z_95 = 1.959963984540054  # Two-sided 95 % quantile of the normal distribution


class Estimate(NamedTuple):
    """A mean with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def signed(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the unbiased pass@k of one problem: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    >>> pass_at_k(num_samples=4, num_correct=1, k=2)
    0.5
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@{k} of {num_correct} correct in {num_samples} samples: 0 <= c <= n and 1 <= k <= n must hold"
        )
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mean_share(shares: Sequence[float]) -> Estimate:
    """Return the mean over problems of shares in [0, 1], with a Wilson interval over problems.

    Samples of one problem are not independent, so the problems are the units: n_eff = p(1-p) / (var(shares) / n),
    at least n. Stays inside [0, 1] and is never empty, also when all problems are solved.
    """
    if not (n := len(shares)):
        return Estimate(math.nan, math.nan, math.nan)
    p = float(np.mean(shares))
    variance = float(np.var(shares, ddof=1)) / n if n > 1 else 0.0
    size = max(n, p * (1 - p) / variance) if variance > 0 else n
    low, high = wilson(p, size)
    return Estimate(p, round(low, 12), round(high, 12))


def wilson(share: float, size: float, z: float = Z_95) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson 1927); all of it for a size of 0.

    >>> [round(bound, 4) for bound in wilson(0, 100)]
    [0.0, 0.037]
    """
    if size <= 0:
        return 0.0, 1.0
    center = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return max(0.0, center - half), min(1.0, center + half)


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the mean of after - before over the same problems, with a normal 95 % interval (needs 2 problems)."""
    if len(before) != len(after):
        raise ValueError(
            f"a paired difference needs the same problems on both sides, got {len(before)} and {len(after)}"
        )
    differences = np.subtract(after, before)
    mean = float(differences.mean()) if len(differences) else math.nan
    half = Z_95 * float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    return Estimate(mean, mean - half, mean + half)


T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
        2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, the last is used (2 % too wide)."""


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Return the mean of a few independent runs, with Student's 95 % interval; infinitely wide for fewer than two.

    >>> mean_over_seeds([0.5, 0.7])
    Estimate(value=0.6, low=-0.6706, high=1.8706)
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    half = T_95[min(len(values) - 1, len(T_95)) - 1] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Estimate(round(mean, 12), round(mean - half, 12), round(mean + half, 12))


def majority_at_k(right: Sequence[int], wrong: Sequence[int], abstained: int, k: int) -> float:
    """Return the expected accuracy of the majority vote of k of n samples, over all subsets of k; ties are drawn.

    An answer wins in a subset where it is the most frequent one; of t + 1 answers that are equally frequent, each wins
    with probability 1 / (t + 1). A right answer of n_a samples wins with v votes in
    C(n_a, v) [x^(k-v)] sum_t y_t / (t + 1) of the C(n, k) subsets, where y_t collects the terms with t ties of
    prod_b (sum_{u < v} C(n_b, u) x^u + y C(n_b, v) x^v) over the other answers b, times (1 + x)^abstained.
    For k = n it is the share of right ones among the most frequent answers.

    >>> majority_at_k(right=[2], wrong=[2], abstained=0, k=4), majority_at_k(right=[1], wrong=[2], abstained=0, k=1)
    (0.5, 0.3333333333333333)

    Args:
        right: samples of each right answer.
        wrong: samples of each wrong answer.
        abstained: samples without an answer; a subset of nothing else has no right answer.
        k: votes.
    """
    n = sum(right) + sum(wrong) + abstained
    if any(size < 1 for size in (*right, *wrong)) or abstained < 0 or not 1 <= k <= n:
        raise ValueError(f"a majority of {k} of {n} samples: every answer has at least 1 and 1 <= k <= n must hold")
    return _majority_at_k(tuple(right), tuple(wrong), abstained, k)


def majority_of(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Return `majority_at_k` of samples with these answers; one is right if any of its samples is, None is none.

    >>> majority_of(["4", "4", "5", None], [True, False, False, False], k=4)
    1.0
    """
    sizes = Counter(answer for answer in answers if answer is not None)
    accepted = {answer for answer, is_right in zip(answers, right, strict=True) if is_right}
    paid, unpaid = (
        sorted(size for answer, size in sizes.items() if (answer in accepted) is wanted) for wanted in (True, False)
    )
    return majority_at_k(paid, unpaid, len(answers) - sizes.total(), k)


@lru_cache(maxsize=4096)
def _majority_at_k(right: tuple[int, ...], wrong: tuple[int, ...], abstained: int, k: int) -> float:
    wins = Fraction(0)
    for index, size in enumerate(right):
        others = (*right[:index], *right[index + 1 :], *wrong)
        for votes in range(1, size + 1):
            wins += math.comb(size, votes) * _losing(others, abstained, votes, k - votes)
    return float(wins / math.comb(sum(right) + sum(wrong) + abstained, k))


def _losing(others: Sequence[int], abstained: int, votes: int, left: int) -> Fraction:
    """Ways to spread the `left` samples so that no other answer has more votes; with t ties, a way counts 1 / (t + 1).

    `ways[taken, ties]` is the coefficient of x^taken y^ties.
    """
    ways = {(taken, 0): math.comb(abstained, taken) for taken in range(abstained + 1)}
    for size in others:
        longer: Counter[tuple[int, int]] = Counter()
        for (taken, ties), count in ways.items():
            for more in range(min(size, votes) + 1):
                longer[taken + more, ties + (more == votes)] += count * math.comb(size, more)
        ways = longer
    return sum((Fraction(count, ties + 1) for (taken, ties), count in ways.items() if taken == left), Fraction(0))


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
