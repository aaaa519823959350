"""Statistics of series: means at both ends, trends, what lies far out."""

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean, median

WINDOW = 5  # steps that a statistic of "now" is taken over, and that a run's start is
SURE = 0.01  # p-value below which a trend is one
LIKELY = 0.05  # p-value below which a trend may be one


def recent(values: Sequence[float], size: int = WINDOW) -> float:
    """Mean of the last values."""
    return fmean(values[-size:])


def start(values: Sequence[float], size: int = WINDOW) -> float:
    """Mean of the first values."""
    return fmean(values[:size])


MOST = 200  # values that a trend is computed of; of longer series, means of as many blocks: pairs grow with the square


def _blocks(values: Sequence[float]) -> list[float]:
    size = -(-len(values) // MOST)
    return [fmean(values[i : i + size]) for i in range(0, len(values), size)] if size > 1 else list(values)


def slope(values: Sequence[float]) -> float:
    """Theil-Sen slope per position: the median slope of all pairs (Sen 1968). 0 for fewer than two values.

    >>> slope([0.0, 1.0, 2.0, 3.0, 100.0])
    1.0
    """
    blocks = _blocks(values)
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(blocks), 2)]
    scale = len(blocks) / len(values) if len(blocks) < len(values) else 1.0
    return scale * median(slopes) if slopes else 0.0


def rises(values: Sequence[float]) -> float:
    """One-sided p-value of "there is no rise" (Mann 1945, Kendall 1975): normal, for ties and continuity corrected.

    1 for fewer than four values: they prove nothing.

    >>> round(rises([1.0, 2.0, 3.0, 4.0]), 4)
    0.0447
    """
    values = _blocks(values)
    n = len(values)
    if n < 4:
        return 1.0
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = [values.count(value) for value in set(values)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if variance == 0:
        return 1.0
    z = (score - (score > 0) + (score < 0)) / math.sqrt(variance)
    return 0.5 * math.erfc(z / math.sqrt(2))


def falls(values: Sequence[float]) -> float:
    """One-sided p-value of "there is no fall"; see `rises`."""
    return rises([-value for value in values])


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b of two series; 0 where one of them never changes.

    >>> rank_correlation([1, 2, 3], [10, 20, 15])
    0.3333333333333333
    """
    first, second = _blocks(first), _blocks(second)
    pairs = list(combinations(zip(first, second, strict=True), 2))
    signs = [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in pairs]
    distinct = sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs)
    return sum(x * y for x, y in signs) / math.sqrt(distinct) if distinct else 0.0


def outlying(values: Sequence[float], deviations: float, times: float) -> list[int]:
    """Positions of values above the median by this many median absolute deviations, and this many times it.

    >>> outlying([1.0, 1.1, 0.9, 1.0, 30.0], deviations=8, times=3)
    [4]
    """
    if not values:
        return []
    middle = median(values)
    spread = median([abs(value - middle) for value in values])
    return [i for i, value in enumerate(values) if value > middle + deviations * spread and value >= times * middle]


def sign_test(worse: int, better: int) -> float:
    """One-sided exact p-value of as many `worse` ones among those that changed, were both as likely (McNemar 1947).

    >>> sign_test(worse=5, better=0)
    0.03125
    """
    n = worse + better
    return sum(math.comb(n, k) for k in range(worse, n + 1)) / float(2**n)
