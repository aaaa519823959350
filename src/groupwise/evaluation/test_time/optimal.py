"""The best method for each difficulty, and what it costs to know the difficulty."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.algorithms.bootstrap import bootstrap_difference, bootstrap_share
from groupwise.algorithms.compute_optimal import absolute_bins, cross_fitted, folds, quantile_bins
from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.test_time.methods import Cost, Measured, Pools

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difficulty:
    """A way to tell easy problems from hard ones."""

    name: str
    """`label`: the task's own; `pass_rate`: share of right samples of a pool of its own, in fifths of the problems, or
    `pass_rate_absolute` between fixed bounds (both know the truth); `prm`: mean score of that pool."""
    bins: Ints
    """(P,) the hardest problems in bin 0; of labels, in their order."""
    cost: Cost
    """(P,) of knowing it."""


@dataclass(frozen=True, slots=True)
class Optimal:
    """The best method for each difficulty at a budget, cross-fitted."""

    difficulty: str
    budget: int
    accuracy: Estimate
    gain: Estimate
    """Above the one method that is best on the other half of the problems, whatever their difficulty; paired."""
    methods: Mapping[int, Mapping[str, int]]
    """By bin, how many problems got which method."""
    cost: Cost
    """Mean per problem, without that of the difficulty."""
    difficulty_cost: Cost
    """Mean per problem."""


def difficulties(labels: Sequence[str], own: Pools | None) -> list[Difficulty]:
    """The ways that there are.

    Args:
        labels: the task's label of each problem.
        own: a pool that no other figure uses, so that luck in it raises nothing; None: only labels.
    """
    names = sorted(set(labels))
    free = Cost(*(np.zeros(len(labels)) for _ in Cost._fields))
    found = [Difficulty("label", np.array([names.index(label) for label in labels], np.int64), free)]
    if own is None:
        return found
    rates, size = [pool.pass_rate for pool in own.pools], max(len(pool.samples) for pool in own.pools)
    cost = own.sampled(size)
    found.append(Difficulty("pass_rate", quantile_bins(rates), cost))
    found.append(Difficulty("pass_rate_absolute", absolute_bins(rates), cost))
    if "prm" in own.scored:
        means = [float(np.mean(scored.joined("last"))) for scored in own.scored["prm"]]
        found.append(Difficulty("prm", quantile_bins(means), cost.plus(own.read("prm", size))))
    return found


def choose(measured: Sequence[Measured], difficulty: Difficulty, seed: int) -> Optimal | None:
    """The best of the methods of one budget for each bin; None for fewer than two problems or methods.

    The controls, which know the truth or nothing, must not be among them.
    """
    num_problems = len(difficulty.bins)
    if num_problems < 2 or len(measured) < 2:
        return None
    by_price = sorted(measured, key=lambda one: (float(one.cost.operations.mean()), one.method))
    table, half = np.array([one.accuracy for one in by_price]), folds(num_problems, seed)
    chosen = cross_fitted(table, difficulty.bins, half)
    same = cross_fitted(table, np.zeros(num_problems, np.int64), half)
    every = np.arange(num_problems)
    costs = [np.array([one.cost[part] for one in by_price]) for part in range(len(Cost._fields))]
    return Optimal(
        difficulty.name,
        max(one.budget for one in measured),
        bootstrap_share(table[chosen, every].tolist(), seed),
        bootstrap_difference(table[same, every].tolist(), table[chosen, every].tolist(), seed),
        _counts(difficulty.bins, [by_price[index].method for index in chosen]),
        Cost(*(cost[chosen, every] for cost in costs)),
        difficulty.cost,
    )


def _counts(bins: Ints, methods: Sequence[str]) -> dict[int, dict[str, int]]:
    counts: dict[int, dict[str, int]] = {}
    for label, method in zip(bins.tolist(), methods, strict=True):
        of_bin = counts.setdefault(label, {})
        of_bin[method] = of_bin.get(method, 0) + 1
    return {label: counts[label] for label in sorted(counts)}
