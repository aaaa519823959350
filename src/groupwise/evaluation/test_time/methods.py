"""Settings of a measurement; and methods on a pool at every budget: expected accuracy on each problem, and its cost.

A budget is a number of samples k. The figures are means over all subsets of k samples (`algorithms.pools`), so nothing
depends on the order in which the pool was sampled.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from groupwise.algorithms.pools import Expected, best_of_k, weighted_vote
from groupwise.algorithms.statistics import majority_of
from groupwise.algorithms.step_metrics import AGGREGATES
from groupwise.config import Section
from groupwise.evaluation.test_time.pool import Pool, Role, ScoredPool
from groupwise.randomness import key, uniforms
from groupwise.verifiers.steps import Step

GREEDY = "greedy"
SEARCHES = ("beam", "dvts", "lookahead")
CHAINS = ("revise", "force")
CUT = "cut"
METHODS = (GREEDY, "majority", "best_of_n", "weighted", *SEARCHES, *CHAINS, CUT)
BY_SCORE = ("best_of_n", "weighted")


class BudgetConfig(Section):
    """Methods, budgets and their parameters."""

    methods: tuple[str, ...] = ()
    """Of `greedy`, `majority`, `best_of_n`, `weighted`, `beam`, `dvts`, `lookahead`, `revise`, `force`, `cut`; empty:
    the first two, and with a reward model the first four."""
    budgets: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    """Numbers of samples, slots or links, N."""
    samples: int = Field(64, ge=1)
    """Samples in the pool of each problem."""
    difficulty_samples: int = Field(8, ge=0)
    """Samples of a separate pool that estimates how difficult a problem is; 0: only the task's labels."""
    step: Step = "sentence"
    """End of a step: `sentence`, `newline`, `equation`, or a regular expression whose matches end steps."""
    width: int = Field(4, ge=1)
    """M of a search: continuations of each slot that is kept (Snell et al.: 4)."""
    lookahead: int = Field(1, ge=1)
    """Greedy steps that `lookahead` scores ahead (Snell et al.: 1 and 3)."""
    aggregate: Literal["last", "min", "product", "mean"] = "last"
    """Join of the scores of steps: `last` suits a model of values, `min` and `product` one of correctness."""
    chains: int = Field(4, ge=1)
    """Chains of each problem, for `revise`, `force` and `cut`; figures are means over them."""
    cut_tokens: int = Field(4, ge=1)
    """Tokens of thinking that `cut` allows for each unit of the budget."""
    phrases: Mapping[str, str] = {"en": " Wait, let me check. ", "zh": "等一下，让我检查一下。"}
    """Phrase that `force` inserts in place of the end of the reasoning, by the problem's language."""
    seed: int = 0
    """Seed of all draws."""

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [method for method in methods if method not in METHODS]:
            raise ValueError(f"method {unknown[0]!r}: allowed are {', '.join(METHODS)}")
        return tuple(dict.fromkeys(methods))

    def chosen(self, has_prm: bool, has_orm: bool) -> tuple[str, ...]:
        if not self.methods:
            return (GREEDY, "majority", *(BY_SCORE if has_prm or has_orm else ()))
        for method in self.methods:
            if method in BY_SCORE and not (has_prm or has_orm):
                raise ValueError(f"{method} chooses by a reward model: prm or orm must name one")
            if method in SEARCHES and not has_prm:
                raise ValueError(f"{method} scores steps: prm must name a process reward model")
        return self.methods


Floats = NDArray[np.float64]
CONTROLS = ("control/perfect", "control/constant", "control/random")
"""Best-of-N by a score that knows the truth (which is pass@k), by a constant score (pass@1), and by chance (pass@1 on
average)."""


class Cost(NamedTuple):
    """Cost of a method per problem, each of shape (P,)."""

    policy_tokens: Floats
    reward_tokens: Floats
    operations: Floats
    """Floating-point operations: two for each weight of a model and each token that it reads or samples (Kaplan et al.
    2020, arXiv:2001.08361, §2.1); attention over the context is not counted."""
    seconds: Floats

    def plus(self, other: "Cost") -> "Cost":
        return Cost(*(left + right for left, right in zip(self, other, strict=True)))


class Measured(NamedTuple):
    """A method at a budget."""

    method: str
    budget: int
    accuracy: Floats
    cost: Cost
    standard_error: float = 0.0


class Sizes(NamedTuple):
    """Numbers of weights."""

    policy: int
    rewards: Mapping[Role, int]

    def cost(
        self, seconds: Floats, sampled: Floats, read: Floats, rewarded: Floats | None = None, role: Role = "prm"
    ) -> Cost:
        rewarded = np.zeros(len(sampled)) if rewarded is None else rewarded
        operations = 2.0 * self.policy * (sampled + read) + 2.0 * self.rewards.get(role, 0) * rewarded
        return Cost(sampled, rewarded, operations, seconds)


class Pools(NamedTuple):
    """The pools of all problems with their scores."""

    pools: Sequence[Pool]
    scored: Mapping[Role, Sequence[ScoredPool]]
    sizes: Sizes
    seed: int

    def only(self, places: Sequence[int]) -> "Pools":
        scored = {role: [of_role[place] for place in places] for role, of_role in self.scored.items()}
        return Pools([self.pools[place] for place in places], scored, self.sizes, self.seed)

    def sampled(self, k: int) -> Cost:
        """Return the cost of k samples: their expected tokens, results of tools included, and the prompt once."""
        tokens = k * np.array([pool.mean_tokens for pool in self.pools])
        put_in = [sum(sample.num_put_in for sample in pool.samples) / len(pool.samples) for pool in self.pools]
        read = np.array([pool.prompt_tokens for pool in self.pools]) + k * np.array(put_in)
        return self.sizes.cost(k * np.array([pool.seconds for pool in self.pools]), tokens, read)

    def read(self, role: Role, k: int) -> Cost:
        tokens = k * np.array([scored.mean_tokens for scored in self.scored[role]])
        seconds = k * np.array([scored.seconds for scored in self.scored[role]])
        return self.sizes.cost(seconds, np.zeros(len(tokens)), np.zeros(len(tokens)), tokens, role)


Chooser = Callable[[Pool, Sequence[float], int], Expected]
"""Gives the expected accuracy of a choice among k samples of a pool by their scores."""


def best(pool: Pool, scores: Sequence[float], k: int) -> Expected:
    """Choose the best-scored of k samples."""
    return Expected(best_of_k(scores, pool.right, k), 0.0)


def weighted(pool: Pool, scores: Sequence[float], k: int) -> Expected:
    """Choose the answer with the largest sum of scores among k samples."""
    return weighted_vote(pool.answers, scores, pool.right, k)


def majority(pool: Pool, k: int) -> float:
    """Return the expected accuracy of the most frequent answer of k samples."""
    return majority_of(pool.answers, pool.right, k)


def measure_pools(pools: Pools, budgets: Sequence[int], methods: Sequence[str]) -> Iterator[Measured]:
    """Measure every method that needs nothing but a pool, at every budget."""
    truth = [[float(right) for right in pool.right] for pool in pools.pools]
    constant = [[0.5] * len(pool.samples) for pool in pools.pools]
    chance = [
        uniforms(key(pools.seed, "random score", pool.problem.id), np.arange(len(pool.samples))).tolist()
        for pool in pools.pools
    ]
    for k in budgets:

        def chosen(name: str, scores: Sequence[Sequence[float]], choose: Chooser, cost: Cost, k: int = k) -> Measured:
            expected = [choose(pool, of_pool, k) for pool, of_pool in zip(pools.pools, scores, strict=True)]
            errors = np.array([each.standard_error for each in expected])
            accuracy = np.array([each.value for each in expected])
            return Measured(name, k, accuracy, cost, float(np.sqrt((errors**2).sum())) / len(errors))

        sampled = pools.sampled(k)
        if "majority" in methods:
            yield Measured("majority", k, np.array([majority(pool, k) for pool in pools.pools]), sampled)
        for name, scores in zip(CONTROLS, (truth, constant, chance), strict=True):
            yield chosen(name, scores, best, sampled)
        for role, scored in pools.scored.items():
            cost = sampled.plus(pools.read(role, k))
            for how in AGGREGATES if role == "prm" else ("last",):
                name = f"{role}_{how}" if role == "prm" else role
                scores = [of_pool.joined(how) for of_pool in scored]
                if "best_of_n" in methods:
                    yield chosen(f"best_of_n/{name}", scores, best, cost)
                if "weighted" in methods:
                    yield chosen(f"weighted/{name}", scores, weighted, cost)


def measure_greedy(greedy: Sequence[Pool], sizes: Sizes) -> Measured:
    """Measure the greedy completion; a problem that the verifier failed on counts as not solved."""
    accuracy = np.array([float(any(pool.right)) for pool in greedy])
    tokens = np.array([float(sum(sample.num_tokens for sample in pool.samples)) for pool in greedy])
    put_in = np.array([float(sum(sample.num_put_in for sample in pool.samples)) for pool in greedy])
    read = put_in + [pool.prompt_tokens for pool in greedy]
    return Measured("greedy", 1, accuracy, sizes.cost(np.array([pool.seconds for pool in greedy]), tokens, read))
