"""What every method makes of a pool at every budget: expected accuracy on each problem, and what it costs.

A budget is a number of samples k. The figures are means over all subsets of k samples (`algorithms.pools`), so nothing
depends on the order in which the pool was sampled.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.algorithms.pools import Expected, best_of_k, weighted_vote
from groupwise.algorithms.statistics import majority_at_k
from groupwise.algorithms.step_metrics import AGGREGATES
from groupwise.evaluation.test_time.pool import Pool
from groupwise.evaluation.test_time.scores import Role, ScoredPool
from groupwise.randomness import key, uniforms

Floats = NDArray[np.float64]
CONTROLS = ("control/perfect", "control/constant", "control/random")
"""Best-of-N by a score that knows the truth (which is pass@k), by one that says always the same (pass@1), and by chance
(pass@1 on average)."""


class Cost(NamedTuple):
    """What a method takes, per problem: one number, or (P,) one for each."""

    policy_tokens: Floats
    """Tokens sampled."""
    reward_tokens: Floats
    """Tokens that reward models read."""
    operations: Floats
    """Floating-point operations: two for each weight of a model and each token that it reads or samples (Kaplan et al.
    2020, arXiv:2001.08361, §2.1); attention over the context is not counted."""
    seconds: Floats
    """Time on this machine, with as many samples at one time as the measurement had."""

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Measured:
    """A method at a budget."""

    method: str
    budget: int
    accuracy: Floats
    """(P,) expected accuracy on each problem."""
    cost: Cost
    """Of (P,)."""
    standard_error: float = 0.0
    """Of the mean accuracy, where subsets were drawn instead of counted."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of weights."""

    policy: int
    rewards: Mapping[Role, int]


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of all problems with what reward models say of them."""

    pools: Sequence[Pool]
    scored: Mapping[Role, Sequence[ScoredPool]]
    sizes: Sizes
    seed: int

    def sampled(self, k: int) -> Cost:
        """Cost of k samples: their expected tokens, the results of tools among them, and the prompt once."""
        tokens = k * np.array([pool.mean_tokens for pool in self.pools])
        read = np.array([pool.prompt_tokens + k * pool.mean_put_in for pool in self.pools])
        seconds = k * np.array([pool.seconds for pool in self.pools])
        return Cost(tokens, np.zeros(len(tokens)), 2.0 * self.sizes.policy * (read + tokens), seconds)

    def read(self, role: Role, k: int) -> Cost:
        """Cost of scoring k samples."""
        tokens = k * np.array([scored.mean_tokens for scored in self.scored[role]])
        seconds = k * np.array([scored.seconds for scored in self.scored[role]])
        return Cost(np.zeros(len(tokens)), tokens, 2.0 * self.sizes.rewards[role] * tokens, seconds)

    def scores(self) -> Iterator[tuple[str, Role, list[list[float]]]]:
        """Every way to score a sample: its name, whose it is, and the scores of each pool."""
        for role, scored in self.scored.items():
            for how in AGGREGATES if role == "prm" else ("last",):
                name = f"{role}_{how}" if role == "prm" else role
                yield name, role, [one.joined(how) for one in scored]


Chooser = Callable[[Pool, Sequence[float], int], Expected]
"""Expected accuracy of a choice among k samples of a pool by their scores."""


def measure_pools(pools: Pools, budgets: Sequence[int], methods: Sequence[str]) -> Iterator[Measured]:
    """Every method that needs nothing but a pool, at every budget.

    Args:
        pools: the samples and their scores.
        budgets: numbers of samples, none larger than a pool.
        methods: of `majority`, `best_of_n` and `weighted`; the controls come with them.
    """
    for k in budgets:
        sampled = pools.sampled(k)
        if "majority" in methods:
            yield Measured("majority", k, np.array([majority(pool, k) for pool in pools.pools]), sampled)
        for name, scores in _controls(pools).items():
            yield _chosen(name, pools, scores, k, best, sampled)
        for name, role, scores in pools.scores():
            cost = sampled.plus(pools.read(role, k))
            if "best_of_n" in methods:
                yield _chosen(f"best_of_n/{name}", pools, scores, k, best, cost)
            if "weighted" in methods:
                yield _chosen(f"weighted/{name}", pools, scores, k, weighted, cost)


def measure_greedy(greedy: Sequence[Pool], sizes: Sizes) -> Measured:
    """The likeliest completion; a problem that the verifier failed on counts as not solved."""
    accuracy = np.array([float(any(pool.right)) for pool in greedy])
    tokens = np.array([float(sum(sample.num_tokens for sample in pool.samples)) for pool in greedy])
    put_in = np.array([float(sum(sample.num_put_in for sample in pool.samples)) for pool in greedy])
    read = put_in + [pool.prompt_tokens for pool in greedy]
    seconds = np.array([pool.seconds for pool in greedy])
    return Measured("greedy", 1, accuracy, Cost(tokens, 0 * tokens, 2.0 * sizes.policy * (read + tokens), seconds))


def majority(pool: Pool, k: int) -> float:
    """Expected accuracy of the most frequent answer of k samples; an answer is right if any of its samples is."""
    sizes = Counter(answer for answer in pool.answers if answer is not None)
    right = {sample.answer for sample in pool.samples if sample.right}
    counts = [[size for answer, size in sizes.items() if (answer in right) is wanted] for wanted in (True, False)]
    # the order of the answers does not matter, and sorted counts are computed once
    return majority_at_k(sorted(counts[0]), sorted(counts[1]), len(pool.samples) - sizes.total(), k)


def _chosen(
    name: str, pools: Pools, scores: Sequence[Sequence[float]], k: int, choose: Chooser, cost: Cost
) -> Measured:
    expected = [choose(pool, own, k) for pool, own in zip(pools.pools, scores, strict=True)]
    errors = np.array([one.standard_error for one in expected])
    accuracy = np.array([one.value for one in expected])
    return Measured(name, k, accuracy, cost, float(np.sqrt((errors**2).sum())) / len(errors))


def best(pool: Pool, scores: Sequence[float], k: int) -> Expected:
    """The best-scored of k samples."""
    return Expected(best_of_k(scores, pool.right, k), 0.0)


def weighted(pool: Pool, scores: Sequence[float], k: int) -> Expected:
    """The answer with the largest sum of scores among k samples."""
    return weighted_vote(pool.answers, scores, pool.right, k)


def _controls(pools: Pools) -> dict[str, list[list[float]]]:
    chance = [
        uniforms(key(pools.seed, "random score", pool.problem.id), np.arange(len(pool.samples))).tolist()
        for pool in pools.pools
    ]
    truth = [[float(right) for right in pool.right] for pool in pools.pools]
    return dict(zip(CONTROLS, (truth, [[0.5] * len(pool.samples) for pool in pools.pools], chance), strict=True))
