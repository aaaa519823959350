"""A run in one look: `report.html` and `report.png` in its directory, and a summary for the terminal.

Reads the run directory alone, so it works on a finished run, on a running one and on a copy of one without its weights.
"""

import shlex
from pathlib import Path

from rich.text import Text

from groupwise.evaluation.examples import Example, examples
from groupwise.evaluation.metrics import METRICS, NOT_MEASURED, Change, Pair, before_after, changes, show
from groupwise.evaluation.page import page
from groupwise.evaluation.plots import save_png
from groupwise.evaluation.run_data import RunData, load_run
from groupwise.evaluation.totals import best_line, costs, description, errors_line, pair_line
from groupwise.runs.atomic import write_file

SUMMARY_ROWS = ("pass_at_1", "at_once", "works_out", "checks", "length", "truncated")
"""Metrics of the summary; the page has all of them."""


def write_report(run_path: Path) -> Path:
    """Write `report.html` and `report.png` into a run directory; returns the page's path.

    Raises:
        ConfigError: there is no run at this path.
        DataError: one of its files cannot be read.
    """
    run = load_run(run_path)
    save_png(run, run_path / "report.png")
    target = run_path / "report.html"
    write_file(target, page(run).encode())
    return target


def text_summary(run: RunData) -> Text:
    """A run on one page of a terminal. Print it with rich; `.plain` is the text without style."""
    pair = before_after(run)
    text = Text(no_wrap=True, overflow="ignore")
    text.append(f"{run.path}\n", style="bold").append(f"{description(run)}\n\n")
    text.append(f"{pair_line(run, pair)}\n\n")
    if pair:
        _append_table(text, changes(pair), pair)
    for name, value in _facts(run, pair):
        text.append(f"{name:<20}", style="bold").append(f"{value}\n")
    if pair:
        _append_example(text, examples(pair, 1)[0])
    return text


def sample_command(run: RunData, question: str) -> str | None:
    """The command that asks the best checkpoint a question; None without a checkpoint."""
    best = run.best_checkpoint
    return shlex.join(["groupwise", "sample", str(best), question]) if best else None


def _append_table(text: Text, rows: dict[str, Change], pair: Pair) -> None:
    text.append(f"{'':<18}{'before':<26}{'after':<26}difference\n", style="dim")
    for key in SUMMARY_ROWS:
        row, metric = rows[key], METRICS[key]
        before, after = show(row.before, metric), show(row.after, metric)
        style = "bold" if key == "pass_at_1" else ""
        text.append(f"{metric.name:<18}{before:<26}{after:<26}{show(row.difference, metric, '+')}\n", style=style)
    text.append("\n")


def _facts(run: RunData, pair: Pair | None) -> list[tuple[str, str]]:
    question = pair.after.rows[0]["question"] if pair else "What is 23 × 17?"
    return [
        (METRICS["verdict_errors"].name, errors_line(run)),
        *costs(run).items(),
        ("best checkpoint", best_line(run)),
        ("sample from it", sample_command(run, question) or NOT_MEASURED.replace("measured", "possible: no checkpoint yet")),
    ]


def _append_example(text: Text, example: Example) -> None:
    text.append(f"\n{example.question}", style="bold")
    text.append(f"  (reference answer {example.reference}; {example.why})\n", style="dim")
    for when, answer in (("before", example.before), ("after", example.after)):
        text.append(f"{when}, {answer.share:.0%} of its {answer.num_samples} samples correct; the first:\n", style="dim")
        text.append(f"  {printable(answer.text)}\n")
        style = "green" if answer.outcome == "correct" else "red"
        text.append(f"  {answer.outcome}: {printable(answer.evidence)}\n", style=style)


def printable(text: str) -> str:
    """Text of a model that is safe in a terminal: control characters are spelled out, lines are indented."""
    shown = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text.strip())
    return shown.replace("\n", "\n  ")
