"""A run on one page of a terminal.

Reads the run directory alone, so it works on a finished run, on a running one and on a copy of one without its weights.
"""

import shlex

from rich.text import Text

from groupwise.evaluation.behaviour import run_patterns
from groupwise.evaluation.compare import Change, before_after, changes
from groupwise.evaluation.metrics import METRICS, show
from groupwise.explorer.answers import Asked, examples
from groupwise.explorer.run import best_line, costs, description, errors_line, pair_line
from groupwise.runs.records import Records

SUMMARY_ROWS = ("pass_at_1", "at_once", "works_out", "checks", "length", "truncated")
"""Metrics of the summary; the page has all of them."""
LONGEST_QUESTION = 60
"""Characters up to which a problem's question fits into a command."""


def text_summary(run: Records) -> Text:
    """A run on one page of a terminal. Print it with rich; `.plain` is the text without style."""
    pair = before_after(run)
    text = Text()
    text.append(f"{run.path}\n", style="bold").append(f"{description(run)}\n\n")
    text.append(f"{pair_line(run, pair)}\n\n")
    if pair:
        _append_table(text, changes(pair, run_patterns(run)))
    verdicts, best = (METRICS["verdict_errors"].name, errors_line(run)), ("best checkpoint", best_line(run))
    for name, value in (verdicts, *costs(run).items(), best):
        text.append(f"{name:<17}", style="bold").append(f"{value}\n")
    samples = examples(pair, 1) if pair else []
    text.append("sample from it\n", style="bold")
    text.append(f"  {sample_command(run, samples[0].question if samples else '')}\n")
    for example in samples:
        _append_example(text, example)
    return text


def sample_command(run: Records, question: str) -> str:
    """The command that asks the best checkpoint a question (or a placeholder, where the task's question is long)."""
    text = question if 0 < len(question) <= LONGEST_QUESTION and question.isprintable() else "your question"
    best = run.best
    return shlex.join(["groupwise", "sample", str(best), text]) if best else "not possible yet"


def _append_table(text: Text, rows: dict[str, Change]) -> None:
    text.append(f"{'':<19}{'before':<20}{'after':<20}difference\n", style="dim")
    for key in SUMMARY_ROWS:
        row, metric = rows[key], METRICS[key]
        before, after = (show(estimate, metric, with_unit=False) for estimate in (row.before, row.after))
        difference = show(row.difference, metric, "+", with_unit=False)
        name = f"{metric.name}, {metric.unit}"
        text.append(f"{name:<19}{before:<20}{after:<20}{difference}\n", style="bold" if key == "pass_at_1" else "")
    text.append("\n")


def _append_example(text: Text, example: Asked) -> None:
    text.append(f"\n{example.question}", style="bold")
    text.append(f"  (reference answer {example.reference}; chosen for: {example.kind})\n", style="dim")
    for when, answer in example.answers.items():
        share = "" if answer.share is None else f"{100 * answer.share:.0f}"
        text.append(f"{when}, {share} % of its {answer.num_samples} samples correct; the first:\n", style="dim")
        text.append(f"  {printable(answer.text)}\n")
        style = "green" if answer.outcome == "correct" else "red"
        text.append(f"  {answer.outcome}: {printable(answer.evidence)}\n", style=style)


def printable(text: str) -> str:
    """Text of a model that is safe in a terminal: control characters are spelled out, lines are indented."""
    characters = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text.strip())
    return characters.replace("\n", "\n  ")
