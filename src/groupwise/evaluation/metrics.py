"""Metrics of an evaluation: name, unit and meaning of each, its computation from rows, and paired comparisons.

Trainers, pipelines, the command line, filters of data and pages take every number from here; ledgers, facts and JSON
have it under the same key.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from groupwise.algorithms.statistics import Estimate, majority_of, mean_share, paired_difference, pass_at_k
from groupwise.errors import DataError
from groupwise.evaluation.behaviour import (
    PATTERNS,
    Behaviour,
    Patterns,
    foreign_words,
    is_measured,
    span_of,
    tokens_after_first,
)
from groupwise.runs.records import Evaluation, Records
from groupwise.runs.row import Row, grouped
from groupwise.types import FAMILY_END, FinishReason, Outcome
from groupwise.verifiers.style import is_tagged
from groupwise.verifiers.style.language import MIN_WORDS

NOT_MEASURED = "not measured"


class Metric(NamedTuple):
    """A quantity on pages."""

    name: str
    unit: str
    meaning: str


METRICS: Mapping[str, Metric] = {
    "pass_at_1": Metric(
        "pass@1", "%", "Share of completions with the correct answer: the chance that one attempt succeeds."),
    "at_once": Metric("answers at once", "%",
        "Completions that state an answer with at most one equation before it: no working is shown."),
    "works_out": Metric("works it out", "%", "Completions with two or more equations in their reasoning."),
    "unfinished": Metric("unfinished", "%",
        "Completions whose reasoning never closed or from which no answer could be read; counted as wrong."),
    "checks": Metric("checks itself", "%", "Completions that say they check, such as “wait”, “let me check”, “检查”."),
    "backtracks": Metric("backtracks", "%",
        "Completions that say that something is wrong and go back, such as “that's not right”, “不对”."),
    "another_way": Metric("tries another way", "%", "Completions that announce a second way to the answer."),
    "loops": Metric("loops", "%", "Completions that end by saying the same again and again, four times or more."),
    "mixed": Metric("mixes languages", "%",
        "Completions with a word in another script than that of the problem's language; words of the question do not "
        "count, and languages of one script are not told apart."),
    "open_tags": Metric("leaves tags open", "%", "Completions with a tag that is never closed, or out of order."),
    "format": Metric(
        "right form", "%", "Completions with one reasoning in its tags, nothing before it, and an answer after it."),
    "language": Metric("words in the asked language", "%",
        "Share of words in the script of the problem's language, over completions of at least four words."),
    "length": Metric("length", "tokens", "Mean number of sampled tokens per completion."),
    "length_correct": Metric("length of correct answers", "tokens", "Mean number of tokens of correct completions."),
    "length_wrong": Metric("length of wrong answers", "tokens", "Mean number of tokens of the other completions."),
    "after_first": Metric("tokens after the answer", "tokens",
        "What a correct completion still writes after it first reached the correct value (overthinking)."),
    "calls": Metric("calls of tools", "calls", "Mean number of results of tools in a completion."),
    "truncated": Metric("truncated", "%", "Completions that ran into the token limit."),
    "verdict_errors": Metric("verdict errors", "completions",
        "Completions that the verifier, not the model, failed on; left out of every share."),
    "reward": Metric("training reward", "", "Mean reward of the completions sampled for training."),
    "entropy": Metric(
        "entropy", "nats", "Mean entropy of the distributions that tokens were drawn from; near 0: no variety left."),
    "signal": Metric("groups with signal", "%", "Groups whose completions earned different rewards; only these teach."),
    "tokens": Metric("tokens sampled", "tokens", "Completion tokens sampled in the training steps."),
    "time": Metric("training time", "",
        "Time of the steps: sampling, verifying and updating; evaluations and checkpoints are not in it."),
}  # fmt: skip
"""Every metric by its key in ledgers, facts and JSON; `metric` knows `pass_at_K` too."""


def metric(key: str) -> Metric:
    """Return a metric by its key; `pass_at_K` and `majority_K` for any K, and measures of a recipe."""
    if not (match := re.fullmatch(r"(pass_at|majority)_(\d+)", key)):
        measured = Metric(key.replace("_", " "), "%", "Mean of what a verifier, or a function of the recipe, measures.")
        return METRICS.get(key, measured)
    kind, k = match.groups()
    if kind == "pass_at":
        return Metric(f"pass@{k}", "%", f"The chance that at least one of {k} attempts succeeds.")
    return Metric(f"maj@{k}", "%", f"Problems whose most frequent answer among {k} attempts is correct.")


Measure = Callable[[Row], float | None]
"""The contribution of one completion; None: nothing, because it was not judged or lacks what is measured."""


def _behaviour(behaviour: Behaviour, patterns: Patterns) -> Measure:
    return lambda row: (
        float(span_of(behaviour, row, patterns) is not None)
        if row.outcome.judged and is_measured(behaviour, row)
        else None
    )


def has_format(row: Row) -> bool:
    """Return True if a completion has the right form and a readable answer."""
    return row.outcome is not Outcome.UNPARSABLE and is_tagged(row.prefill + row.text, row.prefill)


def _language(row: Row) -> float | None:
    native, foreign = foreign_words(row) or ((), ())
    total = len(native) + len(foreign)
    return len(native) / total if total >= MIN_WORDS else None


def _length(is_correct: bool) -> Measure:
    return lambda row: (
        float(row.length) if row.outcome.judged and is_correct == (row.outcome is Outcome.CORRECT) else None
    )


BEHAVIOURS = {key: Behaviour(metric.name) for key, metric in METRICS.items() if metric.name in list(Behaviour)}


def measures(patterns: Patterns = PATTERNS) -> Mapping[str, Measure]:
    """Return the measure of each metric."""
    return MappingProxyType(
        {
            "pass_at_1": lambda row: float(row.outcome is Outcome.CORRECT) if row.outcome.judged else None,
            **{key: _behaviour(behaviour, patterns) for key, behaviour in BEHAVIOURS.items()},
            "format": lambda row: float(has_format(row)) if row.outcome.judged and not row.turns else None,
            "language": _language, "length": lambda row: float(row.length), "length_correct": _length(True),
            "length_wrong": _length(False), "after_first": tokens_after_first,
            "truncated": lambda row: float(row.finish_reason is FinishReason.LENGTH),
        }
    )  # fmt: skip


MEASURES: Mapping[str, Measure] = measures()


def of_verdicts(rows: Iterable[Row]) -> dict[str, Measure]:
    """Return the measures that the verdicts of the rows hold, such as the share of values that are right."""
    bounds: dict[str, tuple[float, float]] = {}
    for row in rows:
        for name, value in row.measures.items():
            low, high = bounds.get(name, (value, value))
            bounds[name] = min(low, value), max(high, value)
    shares = [name for name, (low, high) in bounds.items() if 0 <= low <= high <= 1 and name not in METRICS]

    def measure(name: str) -> Measure:
        return lambda row: row.measures.get(name)

    return {name: measure(name) for name in shares if name.isidentifier()}


EVERY_COMPLETION = ("length", "truncated")


def by_problem(rows: Iterable[Row], measure: Measure) -> dict[str, float]:
    """Return the mean over each problem's completions; problems are the units of every interval."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if (value := measure(row)) is not None:
            values.setdefault(row.problem, []).append(value)
    return {problem: sum(numbers) / len(numbers) for problem, numbers in values.items()}


def estimate(key: str, rows: Iterable[Row], measure: Measure | None = None) -> Estimate:
    """Return one metric of an evaluation with its 95 % interval over problems; nan if nothing was measured."""
    rows, measure = tuple(rows), measure or MEASURES[key]
    result = mean_of(key, by_problem(rows, measure).values())
    return result._replace(value=float(np.mean([measure(row) for row in rows]))) if key in EVERY_COMPLETION else result


def mean_of(key: str, shares: Iterable[float]) -> Estimate:
    """Return the mean of a metric over problems, with a Wilson interval for shares, else a normal one."""
    values = list(shares)
    # a mean is the paired difference from zero
    return mean_share(values) if metric(key).unit == "%" else paired_difference([0.0] * len(values), values)


def summary(
    rows: Sequence[Row], patterns: Patterns = PATTERNS, more: Mapping[str, Measure] = MappingProxyType({})
) -> dict[str, Estimate]:
    """Return every metric of an evaluation with its 95 % interval over problems; unmeasured ones are left out.

    Besides the measures, also those of verdicts, and `more` of a recipe: `pass_at_k` for powers of two up to the number
    of samples n, and `majority_k` for these and n, over the problems whose verdicts name answers to vote on.
    """
    if not rows:
        return {}
    calls = {"calls": _calls} if any(row.num_insertions for row in rows) else {}
    all_measures = {**measures(patterns), **of_verdicts(rows), **calls, **more}
    groups = grouped(rows, lambda row: row.problem)
    size = max(map(len, groups.values()), default=0)
    powers = [2**i for i in range(1, size.bit_length())]
    verdicts = [[row.outcome is Outcome.CORRECT for row in group if row.outcome.judged] for group in groups.values()]
    shares = {f"pass_at_{k}": [pass_at_k(len(o), sum(o), k) for o in verdicts if len(o) >= k] for k in powers}
    votes = [  # no episode: they are right or wrong by no answer
        group
        for group in groups.values()
        if any(row.answer is not None for row in group)
        or {row.outcome for row in group}.isdisjoint((Outcome.CORRECT, Outcome.WRONG))
    ]
    for k in sorted({*powers, size}):
        shares[f"majority_{k}"] = [
            majority_of([row.answer for row in group], [row.outcome is Outcome.CORRECT for row in group], k)
            for group in votes
            if len(group) >= k
        ]
    estimates = {key: estimate(key, rows, measure) for key, measure in all_measures.items()}
    estimates |= {key: mean_share(values) for key, values in shares.items()}
    return {key: mean for key, mean in estimates.items() if not math.isnan(mean.value)}


def _calls(row: Row) -> float:
    return float(row.num_insertions)


def by_difficulty(
    rows: Iterable[Row], key: str = "pass_at_1", measure: Measure | None = None,
    label: Callable[[Row], str] = lambda row: row.difficulty,
) -> dict[str, Estimate]:  # fmt: skip
    """Return a metric, by default pass@1, of each difficulty label."""
    groups = sorted(grouped(rows, label).items())
    estimates = {name: estimate(key, group, measure) for name, group in groups}
    return {name: mean for name, mean in estimates.items() if not math.isnan(mean.value)}


def by_family(rows: Iterable[Row]) -> dict[str, Estimate]:
    """Return pass@1 of each family: the part of a difficulty label before its colon, for example a mixture's part."""
    return by_difficulty(rows, label=lambda row: row.difficulty.partition(FAMILY_END)[0])


def verdict_errors(rows: Iterable[Row]) -> int:
    """Count the completions that the verifier failed on."""
    return sum(row.outcome.failed for row in rows)


def figures(rows: Sequence[Row], patterns: Patterns = PATTERNS) -> dict[str, Any]:
    """Return all figures of an evaluation as JSON values: metrics with 95 % intervals, pass@k and maj@k first."""
    estimates, no_verdict = summary(rows, patterns), sum(row.outcome is Outcome.NONE for row in rows)
    calls = {}
    if "calls" in estimates:
        calls["calls_by_difficulty"] = {k: mean._asdict() for k, mean in by_difficulty(rows, "calls", _calls).items()}
    first_keys = [key for kind in ("pass_at_", "majority_") for key in estimates if key.startswith(kind)]
    return {
        **{key: estimates[key]._asdict() for key in dict.fromkeys([*first_keys, *estimates])},
        "verdict_errors": verdict_errors(rows), **({"no_verdict": no_verdict} if no_verdict else {}),
        "by_difficulty": {label: mean._asdict() for label, mean in by_difficulty(rows).items()}, **calls,
    }  # fmt: skip


def show(estimate: Estimate, metric: Metric, sign: str = "", with_unit: bool = True) -> str:
    """Format a mean with its interval in the metric's unit, e.g. `12.3 % [9.8, 15.4]`; `sign="+"` for differences."""
    if math.isnan(estimate.value):
        return NOT_MEASURED
    factor, unit = (100, "points" if sign else "%") if metric.unit == "%" else (1, metric.unit)
    # + 0.0 makes a plain zero of the -0.0 that rounding may leave
    value, low, high = (f"{round(factor * number, 1) + 0.0:{sign}.1f}" for number in estimate)
    text = f"{value} {unit}" if with_unit else value
    return f"{text} [{low}, {high}]" if math.isfinite(estimate.high) else text


def compare(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> Estimate:
    """Return the mean of b - a over problems (by id), with a 95 % interval; pairing removes the problems' difficulty.

    >>> compare({"1+1": 0.5, "2+2": 0.0}, {"2+2": 0.5, "1+1": 1.0})
    Estimate(value=0.5, low=0.5, high=0.5)

    Raises:
        DataError: the two sides do not hold the same problems; restrict them to `common` ones first.
    """
    if lone_problems := sorted(shares_a.keys() ^ shares_b.keys()):
        raise DataError(
            f"a paired difference needs the same problems on both sides; {len(lone_problems)} are on one side only, "
            f"for example {lone_problems[0]}"
        )
    return paired_difference(list(shares_a.values()), [shares_b[problem] for problem in shares_a])


def common(shares_a: Mapping[str, float], shares_b: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """Restrict both sides to their common problems, in the order of the first."""
    shared = [problem for problem in shares_a if problem in shares_b]
    return {problem: shares_a[problem] for problem in shared}, {problem: shares_b[problem] for problem in shared}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations on the same problems and random numbers."""

    split: str
    before: Evaluation
    after: Evaluation

    @property
    def num_problems(self) -> int:
        sides = (by_problem(side.rows, MEASURES["pass_at_1"]) for side in (self.before, self.after))
        return len(common(*sides)[0])


def before_after(run: Records) -> Pair | None:
    """Return the test evaluations, or else the first and the newest dev evaluation; None without two evaluations."""
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
    """Compare every measured metric of a pair of evaluations, with intervals over problems."""
    every = {**measures(patterns), **of_verdicts([*pair.before.rows, *pair.after.rows])}
    return {key: change(pair.before.rows, pair.after.rows, key, measure) for key, measure in every.items()}


def change(before: Sequence[Row], after: Sequence[Row], key: str, measure: Measure) -> Change:
    """Compare one metric over the problems that have it on both sides."""
    sides = common(by_problem(before, measure), by_problem(after, measure))
    return Change(metric(key), mean_of(key, sides[0].values()), mean_of(key, sides[1].values()), compare(*sides))
