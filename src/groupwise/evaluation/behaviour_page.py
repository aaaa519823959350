"""The part of a run's page about behaviour: how often each evaluation shows it, what is counted, and real examples.

Everything that comes from a model or a recipe is escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.behaviour import COURSES, Behaviour, Patterns, Span, is_measured, place, run_patterns
from groupwise.evaluation.metrics import BEHAVIOURS, METRICS, NOT_MEASURED, show, summary
from groupwise.evaluation.run_data import EvaluationData, Row, RunData

NUM_EXAMPLES = 3
AROUND = 80
"""Characters shown before and after a passage."""
LONGEST = 240
"""Characters shown of a passage."""
COLUMNS = ("checks", "backtracks", "another_way", "loops", "mixed", "open_tags", "length_correct", "length_wrong",
           "after_first")  # fmt: skip
"""Metrics of the table of evaluations."""


def behaviour_section(run: RunData) -> str:
    """Behaviour at every dev evaluation, and what is counted; empty while there are no completions."""
    shown = [one for one in run.dev if one.rows]
    if not shown:
        return ""
    patterns = run_patterns(run)
    newest_first = [run.test_after, *reversed(shown)] if run.test_after else reversed(shown)
    rows = [row for one in newest_first for row in one.rows]
    return (
        '<section><h2>Behaviour</h2><p class="note">Signs in the text, not thoughts; means over the dev split with '
        f"95 % intervals over problems.</p>{_table(shown, patterns)}"
        f"{''.join(_definition(key, rows, patterns) for key in BEHAVIOURS)}</section>"
    )


def second_section(run: RunData) -> str:
    """What the second verifier said at every dev evaluation; empty where none was asked."""
    checked = [(one.step, one.line["second"]) for one in run.dev if one.line.get("second")]
    if not checked:
        return ""
    alarms = [f"{step}" for step, second in checked if second["alarm"]]
    alarm = f'<p class="wrong"><b>Alarm: reward hacking</b> after {", ".join(alarms)} steps.</p>' if alarms else ""
    note = "Of the completions that training pays, a sample is judged again by a verifier that training never uses."
    lines = "".join(_second_line(step, second) for step, second in checked)
    head = "<tr><th>steps</th><th>verifier</th><th>rejects</th><th>share</th><th>for example</th></tr>"
    table = f'<table class="steps"><thead>{head}</thead><tbody>{lines}</tbody></table>'
    return f'<section><h2>Second verifier</h2>{alarm}<p class="note">{note}</p>{table}</section>'


def _second_line(step: int, second: Mapping[str, Any]) -> str:
    share, one = second["share"], second["example"]
    cells = {
        "verifier": second["verifier"],
        "rejects": f"{second['rejected']} of {second['judged']}",
        "share": Estimate(*share) if share else NOT_MEASURED,
        "for example": f"completion {one['sample']} of {one['problem']}: {one['evidence']}" if one else "–",
    }
    shown = (f'<td data-name="{name}">{escape(str(value))}</td>' for name, value in cells.items())
    return f"<tr><th>{step}</th>{''.join(shown)}</tr>"


def _table(shown: Sequence[EvaluationData], patterns: Patterns) -> str:
    names = "".join(f"<th>{escape(METRICS[key].name)}, {METRICS[key].unit}</th>" for key in COLUMNS)
    lines = "".join(_line(one, patterns) for one in shown)
    return f'<table class="steps"><thead><tr><th>steps</th>{names}</tr></thead><tbody>{lines}</tbody></table>'


def _line(one: EvaluationData, patterns: Patterns) -> str:
    found = summary(one.rows, patterns)
    cells = (_cell(key, show(found[key], METRICS[key], with_unit=False) if key in found else "–") for key in COLUMNS)
    return f"<tr><th>{one.step}</th>{''.join(cells)}</tr>"


def _cell(key: str, shown: str) -> str:
    value, bracket, interval = shown.partition(" [")
    return f'<td data-name="{escape(METRICS[key].name)}">{value} <small>{bracket.strip()}{interval}</small></td>'


def _definition(key: str, rows: Sequence[Row], patterns: Patterns) -> str:
    which, metric = BEHAVIOURS[key], METRICS[key]
    phrases = [phrase for found in patterns.get(which, {}).values() for phrase in found]
    listed = f'<p class="note">Phrases: {" ".join(f"<code>{escape(one)}</code>" for one in phrases)}</p>'
    measured = any(is_measured(which, row) for row in rows)
    none = f'<p class="note">{"No completion shows it." if measured else NOT_MEASURED}</p>'
    examples = "".join(islice(_examples(which, rows, patterns), NUM_EXAMPLES)) or none
    return (
        f"<details><summary><b>{escape(metric.name)}</b> {escape(metric.meaning)}</summary>"
        f"{listed if phrases else ''}{examples}</details>"
    )


def _examples(which: Behaviour, rows: Sequence[Row], patterns: Patterns) -> Iterator[str]:
    """The first completions that show it, of different problems, with the passage marked."""
    seen: set[str] = set()
    for row in rows:
        span = place(which, row, patterns) if row["problem"] not in seen and is_measured(which, row) else None
        if span is not None:
            seen.add(row["problem"])
            yield f'<div class="answer"><pre>{_marked(row["text"], span, which in COURSES)}</pre></div>'


def _marked(text: str, span: Span, is_course: bool) -> str:
    start, end = span[0], min(span[1], span[0] + LONGEST)
    before, found, after = text[max(0, start - AROUND) : start], text[start:end], text[end : end + AROUND]
    dots = ["…" if cut else "" for cut in (start > AROUND, end < span[1], end + AROUND < len(text))]
    marked = escape(found) if is_course else f"<mark>{escape(found)}{dots[1]}</mark>"
    return f"{dots[0]}{escape(before)}{marked}{escape(after)}{dots[2]}"
