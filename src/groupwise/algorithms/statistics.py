"""Statistics of evaluations: pass@k, majority vote, and the intervals that belong to every number."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


class Estimate(NamedTuple):
    """A mean with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Unbiased pass@k of one problem: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374, eq. 1).

    >>> pass_at_k(num_samples=4, num_correct=1, k=2)
    0.5
    """
    if not 0 <= num_correct <= num_samples or not 1 <= k <= num_samples:
        raise ValueError(
            f"pass@{k} of {num_correct} correct in {num_samples} samples: 0 <= c <= n and 1 <= k <= n must hold"
        )
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def mean_share(shares: Sequence[float]) -> Estimate:
    """Mean over problems of shares in [0, 1], with a Wilson interval over problems.

    Samples of one problem are not independent, so the problems are the units: n_eff = p(1-p) / (var(shares) / n),
    at least n. Stays inside [0, 1] and is never empty, also when all problems are solved.
    """
    n = len(shares)
    if not n:
        return Estimate(math.nan, math.nan, math.nan)
    p = float(np.mean(shares))
    variance = float(np.var(shares, ddof=1)) / n if n > 1 else 0.0
    size = max(n, p * (1 - p) / variance) if variance > 0 else n
    center = (p + Z_95**2 / (2 * size)) / (1 + Z_95**2 / size)
    half = Z_95 * math.sqrt(p * (1 - p) / size + Z_95**2 / (4 * size**2)) / (1 + Z_95**2 / size)
    return Estimate(p, max(0.0, round(center - half, 12)), min(1.0, round(center + half, 12)))


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Mean of after - before over the same problems, with a normal 95 % interval (needs at least 2 problems)."""
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
    """Mean of a few independent runs, with Student's 95 % interval; infinitely wide for fewer than two.

    >>> mean_over_seeds([0.5, 0.7])
    Estimate(value=0.6, low=-0.6706, high=1.8706)
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return Estimate(mean, -math.inf, math.inf)
    half = T_95[min(len(values) - 1, len(T_95)) - 1] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Estimate(round(mean, 12), round(mean - half, 12), round(mean + half, 12))


def majority(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer; ties go to the one that came first; None when there is no answer at all."""
    counts = Counter(answer for answer in answers if answer is not None)
    return counts.most_common(1)[0][0] if counts else None
