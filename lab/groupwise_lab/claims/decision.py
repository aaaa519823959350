"""Ruling on a claim by a few independent runs, by a rule that is stated before they are looked at.

A claim is a set of values: "above 0.02" is (0.02, ∞). It holds where the whole 95 % interval over seeds lies in the
set, it does not where the whole interval lies outside, and else the runs do not decide it.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from groupwise.algorithms.statistics import T_95, Estimate, mean_over_seeds

LEAST_SEEDS = 3
"""Two seeds decide nothing: their spread is one difference, which may be small by chance."""
MOST_SEEDS = 1000
"""Larger numbers of seeds are not computed."""


class Ruling(StrEnum):
    """Verdict of the runs on a claim."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    OPEN = "not decided by this evidence"


class Bounds(NamedTuple):
    """An open interval of values; the ends may be infinite."""

    low: float
    high: float


def bounds(claimed: str, margin: float) -> Bounds:
    """Return the values of a difference that are claimed.

    above (m, ∞) · below (-∞, -m) · equal (-m, m) · at_least (-m, ∞) · at_most (-∞, m)

    >>> bounds("at_least", 0.02)
    Bounds(low=-0.02, high=inf)
    """
    return CLAIMED[claimed](margin)


CLAIMED = {
    "above": lambda margin: Bounds(margin, math.inf),
    "below": lambda margin: Bounds(-math.inf, -margin),
    "equal": lambda margin: Bounds(-margin, margin),
    "at_least": lambda margin: Bounds(-margin, math.inf),
    "at_most": lambda margin: Bounds(-math.inf, margin),
}
"""Claims by name, as functions of their margin, which is not negative."""


class Decision(NamedTuple):
    """A ruling with its evidence."""

    ruling: Ruling
    estimate: Estimate
    """Mean over seeds with Student's 95 % interval."""
    num_seeds: int
    seeds_needed: int | None
    """Seeds that would decide an open claim if mean and spread stayed what they are; None where it is decided, where
    one seed shows no spread, and where more than `MOST_SEEDS` would be needed."""


def decide(values: Sequence[float], claimed: Bounds) -> Decision:
    """Rule on a claim by one value of each seed.

    >>> decide([0.30, 0.32, 0.31], Bounds(0.02, math.inf)).ruling.value
    'holds here'
    >>> decide([0.00, 0.04, 0.01], Bounds(0.02, math.inf)).seeds_needed
    163

    Args:
        values: of every seed, for example paired differences.
        claimed: the values that are claimed.
    """
    estimate = mean_over_seeds(values)
    ruling = _ruling(estimate, claimed) if len(values) >= LEAST_SEEDS else Ruling.OPEN
    needed = seeds_needed(values, claimed) if ruling is Ruling.OPEN else None
    return Decision(ruling, estimate, len(values), needed)


def _ruling(estimate: Estimate, claimed: Bounds) -> Ruling:
    if claimed.low < estimate.low and estimate.high < claimed.high:
        return Ruling.HOLDS
    return Ruling.FAILS if estimate.high < claimed.low or estimate.low > claimed.high else Ruling.OPEN


def seeds_needed(values: Sequence[float], claimed: Bounds) -> int | None:
    """Return the fewest seeds n with t(n - 1) s / √n < d, s the spread, d the distance of the mean to a bound.

    At least three; None where one value shows no spread, and where it would be more than `MOST_SEEDS`.
    """
    if len(values) < 2:
        return None
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    distance = min(abs(mean - end) for end in claimed if math.isfinite(end))
    sizes = range(LEAST_SEEDS, MOST_SEEDS + 1)
    return next((n for n in sizes if _t_95(n - 1) * spread / math.sqrt(n) < distance), None)


def _t_95(degrees: int) -> float:
    return T_95[min(degrees, len(T_95)) - 1]


def slope(points: Mapping[float, float]) -> float:
    """Return the least-squares slope of values over sizes, Σ (x - x̄)(y - ȳ) / Σ (x - x̄)².

    >>> slope({1: 0.5, 2: 0.6, 3: 0.7})
    0.1

    Raises:
        ValueError: there are fewer than two sizes.
    """
    if len(points) < 2:
        raise ValueError(f"a slope needs at least two sizes, got {len(points)}")
    x, y = (np.asarray(list(side), dtype=float) for side in (points.keys(), points.values()))
    x = x - x.mean()
    return round(float(x @ (y - y.mean()) / (x @ x)), 12)
