"""The page of a pipeline: its tables, its pictures, and the same problems answered by every model."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from groupwise.evaluation.metrics import MEASURES, by_problem
from groupwise.pages.examples import Answer
from groupwise.pages.html import render
from groupwise.pages.pipeline.data import PipelineData
from groupwise.pages.pipeline.lineage import picture
from groupwise.pages.pipeline.tables import (
    UNMEASURED,
    bars,
    behaviour_table,
    cost_table,
    data_stages,
    data_table,
    description,
    lineage_table,
    stage_table,
    tiles,
)
from groupwise.pages.pipeline.training import alarm_table, curves, num_alarms, training_table
from groupwise.runs.row import Row
from groupwise.types import Outcome

NUM_PROBLEMS = 3
CALCULATION, GENERAL = "Calculation", "General prompt"
ANSWERED = "answered"
LANGUAGES = {"en": "In words", "zh": "In words, Chinese"}

CHOSEN = (
    "The first sample of each model. The problems are the first of their kind that all models were asked: chosen by "
    "their place, not by the answers."
)

_EXPRESSION = re.compile(r"\d\s*[-+−–×·*/÷^]\s*\d")


def page(data: PipelineData) -> str:
    """The whole page."""
    pictures = [(stage, curves(stage)) for stage in data.stages]
    pictures.sort(key=lambda entry: -len(entry[1]))  # reinforcement learning, with two panels, begins a line
    problems, table = same_problems(data), data_table(data)
    sets = [
        (stage, [(group, list(members)) for group, members in groupby(bars(stage), lambda bar: bar.group)])
        for stage in data_stages(data)
    ]
    return render(
        "pipeline.html",
        title=data.name,
        styles=("style.css", "pipeline.css"),
        description=description(data),
        tiles=tiles(data),
        alarms=", ".join(f"{name} ({count})" for name, count in num_alarms(data).items()),
        picture=picture(data),
        stages=stage_table(data),
        training=training_table(data),
        figures=[(stage, curve) for stage, panels in pictures for curve in panels],
        problems=problems,
        problems_note=CHOSEN if problems else UNMEASURED,
        data_sets=sets,
        data_note=table.note if sets else table.empty,
        behaviour=behaviour_table(data),
        alarm_table=alarm_table(data),
        cost=cost_table(data),
        fingerprints=lineage_table(data),
        recipe=data.recipe or "not there",
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A problem and the first completion of each model that was asked."""

    kind: str
    question: str
    reference: str
    """Empty for general prompts, where no answer is the right one."""
    answers: Mapping[str, Answer]


def same_problems(data: PipelineData) -> list[Asked]:
    """Three problems that all evaluated models were asked, of different kinds where possible, and a general prompt."""
    stages = {stage.name: by_id(stage.completions) for stage in data.policies if stage.completions}
    if not stages:
        return []
    completions = next(iter(stages.values()))
    common = [problem for problem in completions if all(problem in rows for rows in stages.values())]
    kinds = {problem: kind_of(completions[problem][0]) for problem in common}
    return [
        _asked_problem(kinds[problem], {name: rows[problem] for name, rows in stages.items()})
        for problem in choose(kinds)
    ]


def choose(kinds: Mapping[str, str]) -> list[str]:
    """The first problem of each kind, calculations first, filled up with the next ones; a general prompt comes last.

    >>> choose({"a": "In words", "b": GENERAL, "c": "In words", "d": CALCULATION, "e": GENERAL})
    ['d', 'a', 'c', 'b']
    """
    reasoning = sorted(
        (problem for problem in kinds if kinds[problem] != GENERAL), key=lambda problem: kinds[problem] != CALCULATION
    )
    firsts = {kinds[problem]: problem for problem in reversed(reasoning)}
    order = sorted(reasoning, key=lambda problem: firsts[kinds[problem]] != problem)
    return order[:NUM_PROBLEMS] + [problem for problem in kinds if kinds[problem] == GENERAL][:1]


def kind_of(row: Row) -> str:
    """What kind of problem a completion answers."""
    if row.open_ended:
        return GENERAL
    if _EXPRESSION.search(row.question):
        return CALCULATION
    language = row.language or "en"
    return LANGUAGES.get(language, f"In words, {language}")


def by_id(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Completions by problem, in the order of the samples."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.sample):
        groups.setdefault(row.problem, []).append(row)
    return groups


def _asked_problem(kind: str, rows: Mapping[str, list[Row]]) -> Asked:
    row = next(iter(rows.values()))[0]
    answers = {stage: _answer(samples, kind) for stage, samples in rows.items()}
    return Asked(kind, row.question, "" if kind == GENERAL else row.reference, answers)


def _answer(rows: Sequence[Row], kind: str) -> Answer:
    """The first completion; one to a general prompt is never correct, only answered."""
    first, is_open = rows[0], kind == GENERAL
    shares = {} if is_open else by_problem(rows, MEASURES["pass_at_1"])
    return Answer(
        text=first.prefill + first.text,
        outcome=ANSWERED if is_open and first.outcome is Outcome.CORRECT else first.outcome,
        evidence=first.evidence,
        num_tokens=first.length,
        share=shares.get(first.problem),
        num_samples=len(rows),
    )
