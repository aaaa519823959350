"""Results: points with intervals, the best method by difficulty, comparisons at equal tokens; and their files.

Facts are the same on every repeat; the time, which is not, has a separate file.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.algorithms.pools import absolute_bins, cross_fitted, folds, quantile_bins
from groupwise.algorithms.statistics import Estimate, bootstrap_difference, bootstrap_share, bootstrap_way
from groupwise.evaluation.test_time.methods import SEARCHES, Chooser, Cost, Measured, Pools, best, weighted
from groupwise.runs.atomic import write_file
from groupwise.runs.ledger import or_null

FACTS = "budget.jsonl"
TIMES = "seconds.jsonl"
BY_PROBLEM = "by_problem.jsonl"


@dataclass(frozen=True, slots=True)
class Point:
    """A method at a budget, with 95 % intervals over problems."""

    method: str
    budget: int
    accuracy: Estimate
    standard_error: float
    over_majority: Estimate | None
    way: Estimate | None
    by_difficulty: Mapping[str, Estimate]
    policy_tokens: float
    reward_tokens: float
    operations: float
    seconds: float

    @classmethod
    def of(
        cls, measured: Measured, labels: Sequence[str], majority: Measured | None, perfect: Measured | None
    ) -> "Point":
        accuracy = measured.accuracy.tolist()
        by_difficulty = {
            label: bootstrap_share([value for value, other in zip(accuracy, labels, strict=True) if other == label])
            for label in sorted(set(labels))
        }
        below = None if majority is None or measured is majority else majority.accuracy.tolist()
        over_majority = None if below is None else bootstrap_difference(below, accuracy)
        way = None if below is None or perfect is None else bootstrap_way(below, accuracy, perfect.accuracy.tolist())
        return cls(
            measured.method, measured.budget, bootstrap_share(accuracy), measured.standard_error, over_majority, way,
            by_difficulty, *(float(np.mean(cost)) for cost in measured.cost),
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        facts = {"kind": "point", **or_null(asdict(self))}
        del facts["seconds"]  # which has a separate file
        return facts


class Difficulty(NamedTuple):
    """An estimate of how difficult each problem is."""

    name: str
    """`label`: the task's own; `pass_rate`: share of right samples of a separate pool, in fifths of the problems, or
    `pass_rate_absolute` between fixed bounds (both know the truth); `prm`: mean score of that pool."""
    bins: NDArray[np.int64]
    """(P,) bin of each problem, the hardest in bin 0; labels are in their order."""
    cost: Cost


def difficulties(labels: Sequence[str], pools: Pools | None) -> list[Difficulty]:
    """Return every estimate of difficulty."""
    names = sorted(set(labels))
    free = Cost(*(np.zeros(len(labels)) for _ in Cost._fields))
    ways = [Difficulty("label", np.array([names.index(label) for label in labels], np.int64), free)]
    if pools is None:
        return ways
    rates, size = [pool.pass_rate for pool in pools.pools], max(len(pool.samples) for pool in pools.pools)
    cost = pools.sampled(size)
    ways.append(Difficulty("pass_rate", quantile_bins(rates), cost))
    ways.append(Difficulty("pass_rate_absolute", absolute_bins(rates), cost))
    if "prm" in pools.scored:
        means = [float(np.mean(scored.joined("last"))) for scored in pools.scored["prm"]]
        ways.append(Difficulty("prm", quantile_bins(means), cost.plus(pools.read("prm", size))))
    return ways


@dataclass(frozen=True, slots=True)
class Optimal:
    """The best method for each difficulty at a budget, cross-fitted."""

    difficulty: str
    budget: int
    accuracy: Estimate
    gain: Estimate
    """Accuracy minus that of the single method that is best on the other half of the problems; paired."""
    methods: Mapping[int, Mapping[str, int]]
    cost: Cost
    difficulty_cost: Cost

    @classmethod
    def of(cls, measured: Sequence[Measured], difficulty: Difficulty, seed: int) -> "Optimal | None":
        """Choose among the methods of one budget, controls left out, for each bin; None for fewer than two."""
        num_problems = len(difficulty.bins)
        if num_problems < 2 or len(measured) < 2:
            return None
        by_price = sorted(measured, key=lambda method: (float(method.cost.operations.mean()), method.method))
        table, half = np.array([method.accuracy for method in by_price]), folds(num_problems, seed)
        chosen = cross_fitted(table, difficulty.bins, half)
        same = cross_fitted(table, np.zeros(num_problems, np.int64), half)
        problems = np.arange(num_problems)
        costs = [np.array([method.cost[part] for method in by_price]) for part in range(len(Cost._fields))]
        counts = {label: Counter[str]() for label in sorted(set(difficulty.bins.tolist()))}
        for label, place in zip(difficulty.bins.tolist(), chosen, strict=True):
            counts[label][by_price[place].method] += 1
        return cls(
            difficulty.name, max(method.budget for method in measured),
            bootstrap_share(table[chosen, problems].tolist(), seed),
            bootstrap_difference(table[same, problems].tolist(), table[chosen, problems].tolist(), seed), counts,
            Cost(*(cost[chosen, problems] for cost in costs)), difficulty.cost,
        )  # fmt: skip

    def facts(self) -> dict[str, Any]:
        means = {
            f"{prefix}{name}": float(np.mean(getattr(cost, name)))
            for prefix, cost in (("", self.cost), ("difficulty_", self.difficulty_cost))
            for name in Cost._fields
            if name != "seconds"
        }
        fields = ("difficulty", "budget", "accuracy", "gain", "methods")
        return {"kind": "optimal", **or_null({name: getattr(self, name) for name in fields}), **means}


class EqualTokens(NamedTuple):
    """A search at a budget, less a choice among as many samples as its tokens pay for; paired by problem."""

    method: str
    budget: int
    against: str
    samples: float
    difference: Estimate
    by_difficulty: Mapping[str, Mapping[int, Estimate]]

    def facts(self) -> dict[str, Any]:
        return {"kind": "equal_tokens", **or_null(self._asdict())}


_CHOICES: Mapping[str, tuple[str, Chooser]] = {"best": ("best_of_n", best), "weighted": ("weighted", weighted)}


def at_equal_tokens(
    measured: Sequence[Measured], pools: Pools, aggregate: str, difficulties: Sequence[Difficulty]
) -> list[EqualTokens]:
    """Compare every search whose tokens pay for at least 1 sample and for no more than the pool has."""
    if "prm" not in pools.scored:
        return []
    scores = [scored.joined(aggregate) for scored in pools.scored["prm"]]
    of_sample = float(np.mean([pool.mean_tokens for pool in pools.pools]))
    most = min(len(pool.samples) for pool in pools.pools)
    compared = []
    for method in measured:
        search, _, choice = method.method.partition("/")
        samples = float(method.cost.policy_tokens.mean()) / of_sample
        if search not in SEARCHES or choice not in _CHOICES or not 1 <= samples <= most:
            continue
        name, choose = _CHOICES[choice]
        below = int(samples)
        share = samples - below
        low, *high = (
            np.array([choose(pool, of_pool, k).value for pool, of_pool in zip(pools.pools, scores, strict=True)])
            for k in ([below, below + 1] if share else [below])
        )
        before, after = low + share * (high[0] - low) if high else low, method.accuracy
        by_difficulty = {
            way.name: {
                int(label): bootstrap_difference(before[way.bins == label].tolist(), after[way.bins == label].tolist())
                for label in np.unique(way.bins)
            }
            for way in difficulties
        }
        difference = bootstrap_difference(before.tolist(), after.tolist())
        against = f"{name}/prm_{aggregate}"
        compared.append(EqualTokens(method.method, method.budget, against, samples, difference, by_difficulty))
    return compared


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """The result of `measure_budget`."""

    settings: Mapping[str, Any]
    measured: Sequence[Measured]
    labels: Sequence[str]
    problems: Sequence[str]
    left_out: Sequence[str]
    points: Sequence[Point]
    optimal: Sequence[Optimal]
    flips: Sequence[Mapping[str, Any]]
    directory: Path
    equal_tokens: Sequence[EqualTokens] = ()

    def records(self) -> list[dict[str, Any]]:
        return [
            {"kind": "settings", **self.settings, "problems": len(self.problems), "left_out": list(self.left_out)},
            *(point.facts() for point in self.points),
            *(choice.facts() for choice in self.optimal),
            *(comparison.facts() for comparison in self.equal_tokens),
            *({"kind": "flips", **flip} for flip in self.flips),
        ]

    def times(self) -> list[dict[str, Any]]:
        points = [{"kind": "point", "method": p.method, "budget": p.budget, "seconds": p.seconds} for p in self.points]
        optimal = [
            {
                "kind": "optimal", "difficulty": choice.difficulty, "budget": choice.budget,
                "seconds": float(choice.cost.seconds.mean()),
                "difficulty_seconds": float(choice.difficulty_cost.seconds.mean()),
            }
            for choice in self.optimal
        ]  # fmt: skip
        return [*points, *optimal]

    def write(self) -> None:
        by_problem = [
            {
                "problem": problem, "difficulty": label, "method": method.method, "budget": method.budget,
                "accuracy": value,
            }
            for method in self.measured
            for problem, label, value in zip(self.problems, self.labels, method.accuracy.tolist(), strict=True)
        ]  # fmt: skip
        for name, lines in ((FACTS, self.records()), (TIMES, self.times()), (BY_PROBLEM, by_problem)):
            text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
            write_file(self.directory / name, text.encode())

    def as_dict(self) -> dict[str, Any]:
        settings, *facts = self.records()
        points = [{**fact, "seconds": point.seconds} for fact, point in zip(facts, self.points, strict=False)]
        kinds = ("optimal", "equal_tokens", "flips")
        return {
            "settings": settings,
            "points": points,
            **{kind: [fact for fact in facts if fact["kind"] == kind] for kind in kinds},
        }
