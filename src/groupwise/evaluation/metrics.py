"""What reports measure: every metric's name, unit and meaning, defined once, and its value before and after a run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate, majority, mean_share, paired_difference, pass_at_k
from groupwise.evaluation.behaviour import PATTERNS, Behaviour, Patterns, foreign_words, is_measured, place, prefill
from groupwise.evaluation.compare import common, compare
from groupwise.evaluation.overthinking import tokens_after_first
from groupwise.evaluation.run_data import EvaluationData, Row, RunData
from groupwise.types import FinishReason, Outcome
from groupwise.verifiers.style.format import is_tagged
from groupwise.verifiers.style.language import MIN_WORDS

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
    "backtracks": Metric(
        "backtracks",
        "%",
        "Completions that say that something is wrong and go back, such as “that's not right”, “不对”.",
    ),
    "another_way": Metric("tries another way", "%", "Completions that announce a second way to the answer."),
    "loops": Metric("loops", "%", "Completions that end by saying the same again and again, four times or more."),
    "mixed": Metric(
        "mixes languages",
        "%",
        "Completions with a word in another script than that of the problem's language; words of the question do not "
        "count, and languages of one script are not told apart.",
    ),
    "open_tags": Metric("leaves tags open", "%", "Completions with a tag that is never closed, or out of order."),
    "format": Metric(
        "right form", "%", "Completions with one reasoning in its tags, nothing before it, and an answer after it."
    ),
    "language": Metric(
        "words in the asked language",
        "%",
        "Share of words in the script of the problem's language, over completions of at least four words.",
    ),
    "length": Metric("length", "tokens", "Mean number of sampled tokens per completion."),
    "length_correct": Metric("length of correct answers", "tokens", "Mean number of tokens of correct completions."),
    "length_wrong": Metric("length of wrong answers", "tokens", "Mean number of tokens of the other completions."),
    "after_first": Metric(
        "tokens after the answer",
        "tokens",
        "What a correct completion still writes after the correct value first stood there as a result (overthinking).",
    ),
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


def _behaviour(which: Behaviour, patterns: Patterns) -> Measure:
    return lambda row: (
        float(place(which, row, patterns) is not None) if _judged(row) and is_measured(which, row) else None
    )


def _format(row: Row) -> float | None:
    begun = prefill(row)
    is_right = row["outcome"] != Outcome.UNPARSABLE and is_tagged(begun + row["text"], begun)
    return float(is_right) if _judged(row) else None


def _language(row: Row) -> float | None:
    own, foreign = foreign_words(row) or ((), ())
    total = len(own) + len(foreign)
    return len(own) / total if total >= MIN_WORDS else None


def _length(is_correct: bool) -> Measure:
    return lambda row: (
        float(row["num_tokens"]) if _judged(row) and is_correct == (row["outcome"] == Outcome.CORRECT) else None
    )


BEHAVIOURS: Mapping[str, Behaviour] = {
    "at_once": Behaviour.AT_ONCE,
    "works_out": Behaviour.WORKS_OUT,
    "unfinished": Behaviour.UNFINISHED,
    "checks": Behaviour.CHECKS,
    "backtracks": Behaviour.BACKTRACKS,
    "another_way": Behaviour.ANOTHER_WAY,
    "loops": Behaviour.LOOPS,
    "mixed": Behaviour.MIXES_LANGUAGES,
    "open_tags": Behaviour.OPEN_TAGS,
}
"""Which metric counts which behaviour."""


def measures(patterns: Patterns = PATTERNS) -> Mapping[str, Measure]:
    """What one completion contributes to each metric.

    None: nothing, because it was not judged or the row does not say what is measured.
    """
    return MappingProxyType(
        {
            "pass_at_1": lambda row: float(row["outcome"] == Outcome.CORRECT) if _judged(row) else None,
            **{key: _behaviour(which, patterns) for key, which in BEHAVIOURS.items()},
            "format": _format,
            "language": _language,
            "length": lambda row: float(row["num_tokens"]),
            "length_correct": _length(True),
            "length_wrong": _length(False),
            "after_first": tokens_after_first,
            "truncated": lambda row: float(row["finish_reason"] == FinishReason.LENGTH),
        }
    )


MEASURES: Mapping[str, Measure] = measures()
"""The measures with the embedded phrases."""


def by_problem(rows: Iterable[Row], measure: Measure) -> dict[str, float]:
    """Mean over each problem's completions; problems are the units of every interval."""
    values: dict[str, list[float]] = {}
    for row in rows:
        value = measure(row)
        if value is not None:
            values.setdefault(row["problem"], []).append(value)
    return {problem: sum(found) / len(found) for problem, found in values.items()}


def summary(rows: Sequence[Row], patterns: Patterns = PATTERNS) -> dict[str, Estimate]:
    """Every metric of an evaluation with its 95 % interval over problems; what was not measured is left out.

    Besides the measures: `pass_at_k` for powers of two up to the number of samples n, and `majority_n`.
    """
    found = {key: _mean_of(key, by_problem(rows, measure)) for key, measure in measures(patterns).items()}
    return {key: each for key, each in (found | _of_samples(rows)).items() if not math.isnan(each.value)}


def _of_samples(rows: Iterable[Row]) -> dict[str, Estimate]:
    """Unbiased pass@k, and the share of problems whose most frequent answer is correct."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    size = max(map(len, groups.values()), default=0)
    judged = [[row["outcome"] == Outcome.CORRECT for row in group if _judged(row)] for group in groups.values()]
    ks = [2**i for i in range(1, size.bit_length())]
    found = {f"pass_at_{k}": [pass_at_k(len(o), sum(o), k) for o in judged if len(o) >= k] for k in ks}
    found[f"majority_{size}"] = [_majority_is_correct(group) for group in groups.values()]
    return {key: mean_share(values) for key, values in found.items()}


def _majority_is_correct(group: Sequence[Row]) -> float:
    winner = majority([row["answer"] for row in group])
    right = {row["answer"] for row in group if row["outcome"] == Outcome.CORRECT}
    return float(winner is not None and winner in right)


def _mean_of(key: str, values: Mapping[str, float]) -> Estimate:
    mean = mean_share if METRICS[key].unit == "%" else _mean
    return mean(list(values.values()))


def verdict_errors(rows: Iterable[Row]) -> int:
    """Completions that the verifier failed on."""
    return sum(Outcome(row["outcome"]).failed for row in rows)


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


def changes(pair: Pair, patterns: Patterns = PATTERNS) -> dict[str, Change]:
    """Every measured metric of a pair of evaluations, with intervals over problems."""
    return {key: change(pair.before.rows, pair.after.rows, key, measure) for key, measure in measures(patterns).items()}


def change(before: Sequence[Row], after: Sequence[Row], key: str, measure: Measure) -> Change:
    """One metric over the problems that have it on both sides."""
    sides = common(by_problem(before, measure), by_problem(after, measure))
    return Change(METRICS[key], _mean_of(key, sides[0]), _mean_of(key, sides[1]), compare(*sides))


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
