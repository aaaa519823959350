"""From results to rulings: the number of every seed, and what they decide."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise_lab.claims.config import Claim, Measured, Statistic
from groupwise_lab.claims.decision import LEAST_SEEDS, Decision, Ruling, decide, slope
from groupwise_lab.claims.results import Result, Results


@dataclass(frozen=True, slots=True)
class Decided:
    """A claim with what its runs say."""

    claim: Claim
    seeds: tuple[int, ...]
    """Seeds that have all results."""
    values: tuple[float, ...]
    """The statistic of each."""
    decision: Decision | None
    """None where no seed has all results: then nothing is said of it."""
    sides: Mapping[str, Estimate]
    """Parts of the statistic over these seeds."""

    @property
    def verdict(self) -> str:
        """As the document says it."""
        if self.decision is None or not self.is_measured:
            return "not yet measured"
        return self.decision.ruling.value

    @property
    def is_measured(self) -> bool:
        """True if there are as many seeds as the rule needs."""
        return len(self.seeds) >= LEAST_SEEDS

    @property
    def is_decided(self) -> bool:
        """True if it holds or does not."""
        return self.decision is not None and self.decision.ruling is not Ruling.OPEN


def decided(claim: Claim, results: Results) -> Decided:
    """Rule on a claim by the seeds that all of its arms have, measured on one kind of machine where it is of a cost."""
    statistic = claim.statistic
    seeds = [seed for seed in sorted({seed for _, seed in results}) if _has_all(statistic, results, seed)]
    values = [value_of(statistic, _of_seed(results, seed)) for seed in seeds]
    decision = decide(values, statistic.bounds) if seeds else None
    sides: dict[str, Estimate] = {}
    for measured in statistic.measured if seeds else ():
        sides[measured] = mean_over_seeds([results[measured.arm, seed].metrics[measured.metric] for seed in seeds])
    return Decided(claim, tuple(seeds), tuple(values), decision, sides)


def _of_seed(results: Results, seed: int) -> dict[str, Result]:
    return {arm: result for (arm, at), result in results.items() if at == seed}


OF_MACHINES = ("processor_s", "peak_memory_mb")
"""Ends of metrics that tell as much of the machine as of the arm."""


def _has_all(statistic: Statistic, results: Results, seed: int) -> bool:
    """Return True if the statistic has all its parts; a cost counts only if one kind of machine measured it."""
    pairs = [(results.get((measured.arm, seed)), measured.metric) for measured in statistic.measured]
    there = [result for result, metric in pairs if result is not None and metric in result.metrics]
    is_cost = any(metric.endswith(OF_MACHINES) for _, metric in pairs)
    return len(there) == len(pairs) and not (is_cost and len({result.machine for result in there}) > 1)


def value_of(statistic: Statistic, results: Mapping[str, Result]) -> float:
    """The statistic of one seed; of a ratio its natural logarithm.

    Args:
        statistic: what is asked for.
        results: of this seed, by arm.
    """
    values = [_value(measured, results) for measured in statistic.measured]
    match statistic.kind:
        case "level":
            value = values[0] - statistic.than
        case "difference":
            value = values[0] - values[1]
        case "difference_of_differences":
            value = (values[0] - values[2]) - (values[1] - values[3])
        case "ratio":
            value = math.log(values[0] / values[1])
        case "slope":
            sizes = [math.log2(point.at) for point in statistic.points]
            value = slope(dict(zip(sizes, values, strict=True)))
    return round(value, 12)


def _value(measured: Measured, results: Mapping[str, Result]) -> float:
    return results[measured.arm].metrics[measured.metric]


def shown(statistic: Statistic, numbers: Sequence[float]) -> list[float]:
    """Values as people read them: a ratio's logarithms as ratios."""
    return [math.exp(number) if statistic.kind == "ratio" else number for number in numbers]
