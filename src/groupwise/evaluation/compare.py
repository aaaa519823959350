"""Two evaluations of the same problems: the difference between them, with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate, paired_difference
from groupwise.errors import DataError
from groupwise.evaluation.behaviour import PATTERNS, Patterns
from groupwise.evaluation.metrics import MEASURES, METRICS, Measure, Metric, by_problem, mean_of, measures
from groupwise.evaluation.run_data import EvaluationData, RunData
from groupwise.runs.row import Row


def compare(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> Estimate:
    """Mean of b - a over problems (by id), with a 95 % interval; pairing removes what makes some problems harder.

    >>> compare({"1+1": 0.5, "2+2": 0.0}, {"2+2": 0.5, "1+1": 1.0})
    Estimate(value=0.5, low=0.5, high=0.5)

    Raises:
        DataError: the two sides do not hold the same problems; restrict them to `common` ones first.
    """
    lone_problems = sorted(shares_a.keys() ^ shares_b.keys())
    if lone_problems:
        raise DataError(
            f"a paired difference needs the same problems on both sides; {len(lone_problems)} are on one side only, "
            f"for example {lone_problems[0]}"
        )
    return paired_difference(list(shares_a.values()), [shares_b[problem] for problem in shares_a])


def common(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Both sides restricted to the problems that both hold, in the order of the first."""
    shared = [problem for problem in shares_a if problem in shares_b]
    return {problem: shares_a[problem] for problem in shared}, {problem: shares_b[problem] for problem in shared}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations on the same problems and random numbers."""

    split: str
    """`test` or `dev`."""
    before: EvaluationData
    after: EvaluationData

    @property
    def num_problems(self) -> int:
        """Problems that both sides judged."""
        sides = (by_problem(side.rows, MEASURES["pass_at_1"]) for side in (self.before, self.after))
        return len(common(*sides)[0])


def before_after(run: RunData) -> Pair | None:
    """The test evaluations, or else the first and the newest dev evaluation; None when there is nothing to compare."""
    if run.test_before and run.test_after and run.test_before.rows and run.test_after.rows:
        return Pair("test", run.test_before, run.test_after)
    dev = [evaluation for evaluation in run.dev if evaluation.rows]
    return Pair("dev", dev[0], dev[-1]) if len(dev) > 1 else None


class Change(NamedTuple):
    """One metric before and after, over the problems that both sides judged."""

    metric: Metric
    before: Estimate
    after: Estimate
    difference: Estimate


def changes(pair: Pair, patterns: Patterns = PATTERNS) -> dict[str, Change]:
    """Every measured metric of a pair of evaluations, with intervals over problems."""
    return {key: change(pair.before.rows, pair.after.rows, key, measure) for key, measure in measures(patterns).items()}


def change(before: Sequence[Row], after: Sequence[Row], key: str, measure: Measure) -> Change:
    """One metric over the problems that have it on both sides."""
    sides = common(by_problem(before, measure), by_problem(after, measure))
    return Change(METRICS[key], mean_of(key, sides[0].values()), mean_of(key, sides[1].values()), compare(*sides))
