"""The part of a run's page about behaviour: how often each evaluation shows it, what is counted, and real examples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from groupwise.evaluation.behaviour import COURSES, Behaviour, Patterns, Span, is_measured, run_patterns, span_of
from groupwise.evaluation.metrics import BEHAVIOURS, METRICS, NOT_MEASURED, Metric, show, summary
from groupwise.evaluation.run_data import EvaluationData, RunData
from groupwise.runs.row import Row

NUM_EXAMPLES = 3
AROUND = 80
"""Characters shown before and after a passage."""
LONGEST = 240
"""Characters shown of a passage."""
COLUMNS = ("checks", "backtracks", "another_way", "loops", "mixed", "open_tags", "length_correct", "length_wrong",
           "after_first")  # fmt: skip
"""Metrics of the table of evaluations."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Where a completion shows a behaviour, with some text around it."""

    before: str
    text: str
    after: str
    is_marked: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """What counts as a behaviour, and the first completions that show it."""

    metric: Metric
    phrases: list[str]
    passages: list[Passage]
    nothing: str
    """What to say where there is no passage."""


@dataclass(frozen=True, slots=True)
class BehaviourSection:
    """Behaviour at every dev evaluation."""

    columns: list[Metric]
    lines: list[tuple[int, list[str]]]
    """Finished steps, and a number with its interval for each column."""
    definitions: list[Definition]


def behaviour_of(run: RunData) -> BehaviourSection | None:
    """Behaviour at every dev evaluation, and what is counted; None while there are no completions."""
    evaluations = [evaluation for evaluation in run.dev if evaluation.rows]
    if not evaluations:
        return None
    patterns = run_patterns(run)
    newest_first = [run.test_after, *reversed(evaluations)] if run.test_after else reversed(evaluations)
    rows = [row for evaluation in newest_first for row in evaluation.rows]
    return BehaviourSection(
        columns=[METRICS[key] for key in COLUMNS],
        lines=[(evaluation.step, _cells(evaluation, patterns)) for evaluation in evaluations],
        definitions=[_definition(key, rows, patterns) for key in BEHAVIOURS],
    )


def _cells(evaluation: EvaluationData, patterns: Patterns) -> list[str]:
    estimates = summary(evaluation.rows, patterns)
    return [show(estimates[key], METRICS[key], with_unit=False) if key in estimates else "–" for key in COLUMNS]


def _definition(key: str, rows: Sequence[Row], patterns: Patterns) -> Definition:
    behaviour = BEHAVIOURS[key]
    is_known = any(is_measured(behaviour, row) for row in rows)
    return Definition(
        metric=METRICS[key],
        phrases=[phrase for phrases in patterns.get(behaviour, {}).values() for phrase in phrases],
        passages=list(islice(_passages(behaviour, rows, patterns), NUM_EXAMPLES)),
        nothing="No completion shows it." if is_known else NOT_MEASURED,
    )


def _passages(behaviour: Behaviour, rows: Sequence[Row], patterns: Patterns) -> Iterator[Passage]:
    """The first completions that show it, of different problems."""
    problems: set[str] = set()
    for row in rows:
        is_candidate = row.problem not in problems and is_measured(behaviour, row)
        span = span_of(behaviour, row, patterns) if is_candidate else None
        if span is not None:
            problems.add(row.problem)
            yield _passage(row.text, span, is_marked=behaviour not in COURSES)


def _passage(text: str, span: Span, is_marked: bool) -> Passage:
    start, end = span[0], min(span[1], span[0] + LONGEST)
    before, passage, after = text[max(0, start - AROUND) : start], text[start:end], text[end : end + AROUND]
    dots = ["…" if cut else "" for cut in (start > AROUND, is_marked and end < span[1], end + AROUND < len(text))]
    return Passage(dots[0] + before, passage + dots[1], after + dots[2], is_marked)
