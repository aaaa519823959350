"""Searches beside choices from the pool that sample as many tokens, for all problems and for each difficulty."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from groupwise.algorithms.bootstrap import bootstrap_difference
from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.test_time.methods import Chooser, Floats, Measured, Pools, best, weighted
from groupwise.evaluation.test_time.optimal import Difficulty
from groupwise.evaluation.test_time.settings import SEARCHES

CHOICES: Mapping[str, tuple[str, Chooser]] = {"best": ("best_of_n", best), "weighted": ("weighted", weighted)}
"""What a search makes of its ends, and the same of a pool."""


class EqualTokens(NamedTuple):
    """A search at a budget, less a choice among as many samples as its tokens pay for; paired by problem."""

    method: str
    budget: int
    against: str
    """The choice from the pool."""
    samples: float
    """Samples that take as many tokens, on average; between two whole numbers the accuracy is interpolated."""
    difference: Estimate
    by_difficulty: Mapping[str, Mapping[int, Estimate]]
    """By the way to tell it and its bin; bin 0 is the hardest, of labels the first in their order."""


def at_equal_tokens(
    measured: Sequence[Measured], pools: Pools, aggregate: str, difficulties: Sequence[Difficulty]
) -> list[EqualTokens]:
    """Every search whose tokens pay for 1 sample at least and for no more than the pool has.

    Args:
        measured: among others, searches.
        pools: scored by the process reward model that the searches asked.
        aggregate: how they joined the scores of steps.
        difficulties: ways to tell it.
    """
    if "prm" not in pools.scored:
        return []
    scores = [scored.joined(aggregate) for scored in pools.scored["prm"]]
    of_sample = float(np.mean([pool.mean_tokens for pool in pools.pools]))
    most = min(len(pool.samples) for pool in pools.pools)
    found = []
    for one in measured:
        search, _, choice = one.method.partition("/")
        samples = float(one.cost.policy_tokens.mean()) / of_sample
        if search in SEARCHES and choice in CHOICES and 1 <= samples <= most:
            name, choose = CHOICES[choice]
            other = interpolated(pools, scores, samples, choose)
            bins = {way.name: _by_bin(way, other, one.accuracy) for way in difficulties}
            difference = bootstrap_difference(other.tolist(), one.accuracy.tolist())
            found.append(EqualTokens(one.method, one.budget, f"{name}/prm_{aggregate}", samples, difference, bins))
    return found


def interpolated(pools: Pools, scores: Sequence[Sequence[float]], samples: float, choose: Chooser) -> Floats:
    """(P,) expected accuracy of a choice among a number of samples that need not be whole."""
    below = int(samples)
    share = samples - below
    at = [below, below + 1] if share else [below]
    low, *high = (
        np.array([choose(pool, own, k).value for pool, own in zip(pools.pools, scores, strict=True)]) for k in at
    )
    return low + share * (high[0] - low) if high else low


def _by_bin(way: Difficulty, before: Floats, after: Floats) -> dict[int, Estimate]:
    chosen = {int(label): way.bins == label for label in np.unique(way.bins)}
    return {label: bootstrap_difference(before[at].tolist(), after[at].tolist()) for label, at in chosen.items()}
