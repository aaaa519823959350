"""What was measured, as points: facts that are the same on every repeat, and the time, which is not."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.algorithms.bootstrap import bootstrap_difference, bootstrap_share, bootstrap_way
from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.test_time.equal_tokens import EqualTokens
from groupwise.evaluation.test_time.methods import Cost, Measured
from groupwise.evaluation.test_time.optimal import Optimal
from groupwise.runs.atomic import write_file

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
    """Of drawing subsets; 0 where all were counted."""
    over_majority: Estimate | None
    """Accuracy minus that of the majority vote at this budget, paired by problem."""
    way: Estimate | None
    """Share of the way from the majority vote to pass@k that it covers; None where there is no way."""
    by_difficulty: Mapping[str, Estimate]
    policy_tokens: float
    """Per problem, as all costs are."""
    reward_tokens: float
    operations: float
    seconds: float

    def facts(self) -> dict[str, Any]:
        """All but the time, as JSON values."""
        return {
            "kind": "point", "method": self.method, "budget": self.budget, "accuracy": plain(self.accuracy),
            "standard_error": self.standard_error, "over_majority": plain(self.over_majority), "way": plain(self.way),
            "by_difficulty": {label: plain(value) for label, value in self.by_difficulty.items()},
            "policy_tokens": self.policy_tokens, "reward_tokens": self.reward_tokens, "operations": self.operations,
        }  # fmt: skip


def point(measured: Measured, labels: Sequence[str], majority: Measured | None, best: Measured | None) -> Point:
    """The point of a method; `majority` and `best` are the majority vote and pass@k at the same budget."""
    accuracy, costs = measured.accuracy.tolist(), [float(np.mean(cost)) for cost in measured.cost]
    of_label = {
        label: bootstrap_share([value for value, own in zip(accuracy, labels, strict=True) if own == label])
        for label in sorted(set(labels))
    }
    compared = None if majority is None or measured is majority else majority.accuracy.tolist()
    return Point(
        measured.method, measured.budget, bootstrap_share(accuracy), measured.standard_error,
        None if compared is None else bootstrap_difference(compared, accuracy),
        None if compared is None or best is None else bootstrap_way(compared, accuracy, best.accuracy.tolist()),
        of_label, *costs,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """What `measure_budget` found."""

    settings: Mapping[str, Any]
    """What was asked, and the weights that answered."""
    measured: Sequence[Measured]
    labels: Sequence[str]
    """Difficulty of each problem."""
    problems: Sequence[str]
    """Ids of the problems that the figures are of."""
    left_out: Sequence[str]
    """Ids of problems with too few judged samples, which no figure has."""
    points: Sequence[Point]
    optimal: Sequence[Optimal]
    flips: Sequence[Mapping[str, Any]]
    """Of chains, how often a right answer became wrong and a wrong one right, by link."""
    directory: Path
    equal_tokens: Sequence[EqualTokens] = ()
    """Searches beside choices from the pool at as many tokens."""

    def at_tokens(self, method: str, tokens: float) -> float | None:
        """Accuracy of a method where it samples so many tokens per problem; None outside of its budgets.

        Between two budgets it is read off the straight line over the logarithm of tokens.
        """
        points = sorted((one.policy_tokens, one.accuracy.value) for one in self.points if one.method == method)
        if not points or not points[0][0] <= tokens <= points[-1][0]:
            return None
        sizes, values = zip(*points, strict=True)
        return float(np.interp(math.log(tokens), np.log(sizes), values))

    def records(self) -> list[dict[str, Any]]:
        """Every fact, one object each; the same on every repeat."""
        return [
            {"kind": "settings", **self.settings, "problems": len(self.problems), "left_out": list(self.left_out)},
            *(one.facts() for one in self.points),
            *(_optimal(one) for one in self.optimal),
            *(_equal(one) for one in self.equal_tokens),
            *({"kind": "flips", **one} for one in self.flips),
        ]

    def times(self) -> list[dict[str, Any]]:
        """Seconds of every point."""
        points = [{"kind": "point", "method": p.method, "budget": p.budget, "seconds": p.seconds} for p in self.points]
        return [
            *points,
            *(
                {
                    "kind": "optimal", "difficulty": one.difficulty, "budget": one.budget,
                    "seconds": float(one.cost.seconds.mean()),
                    "difficulty_seconds": float(one.difficulty_cost.seconds.mean()),
                }
                for one in self.optimal
            ),
        ]  # fmt: skip

    def write(self) -> None:
        """Write `budget.jsonl`, `by_problem.jsonl` and `seconds.jsonl` into the directory."""
        write_lines(self.directory / FACTS, self.records())
        write_lines(self.directory / TIMES, self.times())
        write_lines(
            self.directory / BY_PROBLEM,
            [
                {"problem": problem, "difficulty": label, "method": one.method, "budget": one.budget, "accuracy": value}
                for one in self.measured
                for problem, label, value in zip(self.problems, self.labels, one.accuracy.tolist(), strict=True)
            ],
        )

    def as_dict(self) -> dict[str, Any]:
        """Facts and times together, as `groupwise budget --json` prints them."""
        facts = self.records()
        points = [
            {**fact, "seconds": one.seconds}
            for fact, one in zip((f for f in facts if f["kind"] == "point"), self.points, strict=True)
        ]
        others = {
            kind: [fact for fact in facts if fact["kind"] == kind] for kind in ("optimal", "equal_tokens", "flips")
        }
        return {"settings": facts[0], "points": points, **others}


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines, all or none."""
    text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
    write_file(path, text.encode())


def plain(estimate: Estimate | None) -> list[float | None] | None:
    """Value, low and high; null for what has no number."""
    return None if estimate is None else [value if math.isfinite(value) else None for value in estimate]


def _optimal(one: Optimal) -> dict[str, Any]:
    return {
        "kind": "optimal", "difficulty": one.difficulty, "budget": one.budget, "accuracy": plain(one.accuracy),
        "gain": plain(one.gain), "methods": {str(label): dict(counts) for label, counts in one.methods.items()},
        **_means(one.cost, ""), **_means(one.difficulty_cost, "difficulty_"),
    }  # fmt: skip


def _equal(one: EqualTokens) -> dict[str, Any]:
    by_difficulty = {
        name: {str(label): plain(value) for label, value in bins.items()} for name, bins in one.by_difficulty.items()
    }
    return {
        "kind": "equal_tokens", "method": one.method, "budget": one.budget, "against": one.against,
        "samples": one.samples, "difference": plain(one.difference), "by_difficulty": by_difficulty,
    }  # fmt: skip


def _means(cost: Cost, prefix: str) -> dict[str, float]:
    return {f"{prefix}{name}": float(np.mean(getattr(cost, name))) for name in Cost._fields if name != "seconds"}
