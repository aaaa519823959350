"""Predictions for training from a small sample of a task: groups that will teach nothing, and dev's resolution.

Problems differ: some are always solved, some never. The share of groups without a signal is therefore no function of
the mean pass rate, and is estimated problem by problem.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

POWER = 2.801585218
"""z(0.975) + z(0.8): a difference of so many standard errors is found at the 5 % level four times in five."""


def flat_share(rewards: Sequence[Sequence[float]], group_size: int) -> float:
    """Return the expected share of groups whose completions all earn the same, without bias.

    Of a problem with n samples, c_v of which earned v, every subset of G is an equally likely group: it is flat with
    probability Σ_v C(c_v, G) / C(n, G). With two rewards that is [C(c, G) + C(n - c, G)] / C(n, G); the mean over
    problems estimates the share without bias. p^G + (1 - p)^G at the mean pass rate would be far too low.

    >>> flat_share([[1, 1, 1, 0], [0, 0, 0, 0]], group_size=2)
    0.75

    Args:
        rewards: of the samples of each problem.
        group_size: G, at most the number of samples of any problem.

    Raises:
        ValueError: there are no problems, or one has fewer samples than a group.
    """
    if not rewards or min(map(len, rewards)) < group_size or group_size < 1:
        raise ValueError(f"groups of {group_size} of {min(map(len, rewards), default=0)} samples: too few samples")
    return fmean(
        sum(math.comb(count, group_size) for count in Counter(samples).values()) / math.comb(len(samples), group_size)
        for samples in rewards
    )


class Spread(NamedTuple):
    """A beta distribution of pass rates over problems; both infinite where all problems are alike."""

    mean: float
    concentration: float
    """a + b; 0: every problem is always or never solved; infinite: all have the mean."""


def fitted(correct: Sequence[int], samples: Sequence[int]) -> Spread:
    """Return the beta distribution with the pass rates' unbiased first two moments.

    E[p] is the mean of c / n, and E[p²] that of c (c - 1) / (n (n - 1)); a + b = (E[p] - E[p²]) / (E[p²] - E[p]²).

    >>> fitted([4, 0], [4, 4]), fitted([2, 2], [4, 4]).concentration
    (Spread(mean=0.5, concentration=0.0), inf)

    Raises:
        ValueError: there are no problems, or one has fewer than two samples.
    """
    if not samples or min(samples) < 2:
        raise ValueError("a spread of pass rates needs problems with two samples each")
    mean = fmean(c / n for c, n in zip(correct, samples, strict=True))
    square = fmean(c * (c - 1) / (n * (n - 1)) for c, n in zip(correct, samples, strict=True))
    variance = square - mean * mean
    return Spread(mean, max(0.0, (mean - square) / variance) if variance > 0 else math.inf)


def flat_share_of(spread: Spread, group_size: int) -> float:
    """Return the share of groups all right or all wrong, for group sizes beyond the sample.

    E[p^G] + E[(1 - p)^G] under the beta distribution: Π_{i<G} (a + i) / (a + b + i), and the same with b.

    >>> flat_share_of(Spread(0.5, 2.0), 2), flat_share_of(Spread(0.5, math.inf), 2)
    (0.6666666666666666, 0.5)
    """
    p, total = spread
    if total == 0:
        return 1.0
    if math.isinf(total):
        return p**group_size + (1 - p) ** group_size
    return _power(p * total, total, group_size) + _power((1 - p) * total, total, group_size)


def _power(a: float, total: float, size: int) -> float:
    return math.prod((a + i) / (total + i) for i in range(size))


def smallest_difference(correct: Sequence[int], samples: Sequence[int], num_problems: int, num_samples: int) -> float:
    """Return the smallest difference in pass@1 that two evaluations of the same problems can tell from chance.

    The problems are the same, so what is left is sampling: 2.80 √(2 v / (N k)), v the mean variance within a problem,
    c (n - c) / (n (n - 1)). Where problems change by different amounts it takes more: this is a lower bound.

    >>> round(smallest_difference([2], [4], num_problems=100, num_samples=4), 4)
    0.1144

    Raises:
        ValueError: there are no problems, or one has fewer than two samples.
    """
    if not samples or min(samples) < 2:
        raise ValueError("a variance within problems needs two samples of each")
    within = fmean(c * (n - c) / (n * (n - 1)) for c, n in zip(correct, samples, strict=True))
    return POWER * math.sqrt(2 * within / (num_problems * num_samples))
