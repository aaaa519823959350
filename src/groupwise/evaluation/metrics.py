"""What reports measure: every metric's name, unit and meaning, defined once, and its value before and after a run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_share, paired_difference
from groupwise.evaluation.behaviour import Behaviour, row_behaviours
from groupwise.evaluation.compare import common, compare
from groupwise.evaluation.run_data import EvaluationData, Row, RunData
from groupwise.types import FinishReason, Outcome

NOT_MEASURED = "not measured"


class Metric(NamedTuple):
    """A quantity that reports show."""

    name: str
    unit: str
    """`%` for shares (kept as 0 to 1), else the unit of the kept number."""
    meaning: str


METRICS: Mapping[str, Metric] = {
    "pass_at_1": Metric(
        "pass@1", "%", "Share of completions with the correct answer: the chance that one attempt succeeds."
    ),
    "at_once": Metric(
        "answers at once",
        "%",
        "Completions that state an answer with at most one equation before it: no working is shown.",
    ),
    "works_out": Metric("works it out", "%", "Completions with two or more equations in their reasoning."),
    "unfinished": Metric(
        "unfinished",
        "%",
        "Completions whose reasoning never closed or from which no answer could be read; counted as wrong.",
    ),
    "checks": Metric("checks itself", "%", "Completions that say they check, such as “wait”, “let me check”, “检查”."),
    "another_way": Metric("tries another way", "%", "Completions that announce a second way to the answer."),
    "length": Metric("length", "tokens", "Mean number of sampled tokens per completion."),
    "truncated": Metric("truncated", "%", "Completions that ran into the token limit."),
    "verdict_errors": Metric(
        "verdict errors",
        "completions",
        "Completions that the verifier, not the model, failed on; left out of every share.",
    ),
    "reward": Metric("training reward", "", "Mean reward of the completions sampled for training."),
    "entropy": Metric(
        "entropy", "nats", "Mean entropy of the distributions that tokens were drawn from; near 0: no variety left."
    ),
    "signal": Metric("groups with signal", "%", "Groups whose completions earned different rewards; only these teach."),
    "tokens": Metric("tokens sampled", "tokens", "Completion tokens sampled in the training steps."),
    "time": Metric(
        "training time",
        "",
        "Time of the steps: sampling, verifying and updating; evaluations and checkpoints are not in it.",
    ),
}
"""The one definition of each metric; plots, pages and summaries take name, unit and meaning from here."""

Measure = Callable[[Row], float | None]


def _judged(row: Row) -> bool:
    return Outcome(row["outcome"]).judged


def _behaviour(which: Behaviour) -> Measure:
    return lambda row: float(which in row_behaviours(row)) if _judged(row) else None


MEASURES: Mapping[str, Measure] = {
    "pass_at_1": lambda row: float(row["outcome"] == Outcome.CORRECT) if _judged(row) else None,
    "at_once": _behaviour(Behaviour.AT_ONCE),
    "works_out": _behaviour(Behaviour.WORKS_OUT),
    "unfinished": _behaviour(Behaviour.UNFINISHED),
    "checks": _behaviour(Behaviour.CHECKS),
    "another_way": _behaviour(Behaviour.ANOTHER_WAY),
    "length": lambda row: float(row["num_tokens"]),
    "truncated": lambda row: float(row["finish_reason"] == FinishReason.LENGTH),
}
"""What one completion contributes to each metric; None: nothing, because the verifier failed on it."""


def by_problem(rows: Iterable[Row], measure: Measure) -> dict[str, float]:
    """Mean over each problem's completions; problems are the units of every interval."""
    values: dict[str, list[float]] = {}
    for row in rows:
        value = measure(row)
        if value is not None:
            values.setdefault(row["problem"], []).append(value)
    return {problem: sum(found) / len(found) for problem, found in values.items()}


def verdict_errors(rows: Iterable[Row]) -> int:
    """Completions that the verifier failed on."""
    return sum(not _judged(row) for row in rows)


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
        sides = (by_problem(one.rows, MEASURES["pass_at_1"]) for one in (self.before, self.after))
        return len(common(*sides)[0])


def before_after(run: RunData) -> Pair | None:
    """The test evaluations, or else the first and the newest dev evaluation; None when there is nothing to compare."""
    if run.test_before and run.test_after and run.test_before.rows and run.test_after.rows:
        return Pair("test", run.test_before, run.test_after)
    dev = [one for one in run.dev if one.rows]
    return Pair("dev", dev[0], dev[-1]) if len(dev) > 1 else None


class Change(NamedTuple):
    """One metric before and after, over the problems that both sides judged."""

    metric: Metric
    before: Estimate
    after: Estimate
    difference: Estimate


def changes(pair: Pair) -> dict[str, Change]:
    """Every measured metric of a pair of evaluations, with intervals over problems."""
    return {key: change(pair.before.rows, pair.after.rows, key) for key in MEASURES}


def change(before: Sequence[Row], after: Sequence[Row], key: str) -> Change:
    """One metric over the problems that both sides judged."""
    sides = common(by_problem(before, MEASURES[key]), by_problem(after, MEASURES[key]))
    metric = METRICS[key]
    mean = mean_share if metric.unit == "%" else _mean
    return Change(metric, mean(list(sides[0].values())), mean(list(sides[1].values())), compare(*sides))


def _mean(values: Sequence[float]) -> Estimate:
    """Mean with a normal interval, which is the paired difference to nothing."""
    return paired_difference([0.0] * len(values), values)


def show(estimate: Estimate, metric: Metric, sign: str = "", with_unit: bool = True) -> str:
    """A mean with its interval in the metric's unit, for example `12.3 % [9.8, 15.4]`; `sign="+"` for differences."""
    if math.isnan(estimate.value):
        return NOT_MEASURED
    factor, unit = (100, "points" if sign else "%") if metric.unit == "%" else (1, metric.unit)
    # + 0.0 makes a plain zero of the -0.0 that rounding may leave
    value, low, high = (f"{round(factor * each, 1) + 0.0:{sign}.1f}" for each in estimate)
    shown = f"{value} {unit}" if with_unit else value
    return f"{shown} [{low}, {high}]" if math.isfinite(estimate.high) else shown
