"""`groupwise runs`: a table of run directories, or one of them on a page of the terminal; and `groupwise export`."""

import math
import os
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from groupwise.cli.app import RunPath, app, console, table_of
from groupwise.errors import ConfigError, GroupwiseError

if TYPE_CHECKING:
    from groupwise.runs.records import Records

SUMMARY_ROWS = ("pass_at_1", "at_once", "works_out", "checks", "length", "truncated")
"""Metrics of the summary; the page has all of them."""
RUNS = Path("runs")
LONGEST_QUESTION = 60
"""Characters up to which a problem's question fits into a command."""


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder of the run directories, or one of them.")] = RUNS,
) -> None:
    """List runs: the task of each, its steps, its best dev result; or print the summary of one.

    Examples:

        groupwise runs

        groupwise runs runs/arithmetic
    """
    if (folder / "config.toml").exists() and (folder / "ledger.jsonl").exists():
        from groupwise.runs.records import Records

        console.print(text_summary(Records.open(folder).intact()), soft_wrap=True)
        return
    if not folder.is_dir() and folder != RUNS:
        raise ConfigError(f"there is no directory {folder}: allowed is a folder of run directories, or one of them")
    list_runs(folder)


@app.command()
def export(
    run: RunPath,
    directory: Annotated[Path, typer.Argument(help="Where to write the model; an existing directory is replaced.")],
    gguf: Annotated[Literal["f32", "f16", "q8_0"] | None,
        typer.Option(help="Write a GGUF file too, in this precision, for llama.cpp, Ollama and LM Studio.")] = None,
) -> None:  # fmt: skip
    """Write a run's newest checkpoint as a plain Hugging Face directory, with the record of how it was made.

    Examples:

        groupwise export runs/arithmetic models/reasoner

        groupwise export runs/arithmetic models/reasoner --gguf q8_0
    """
    from groupwise.models.export import export as export_run

    export_run(run, directory, gguf)
    console.print(f"{directory}: the newest checkpoint of {run}, with provenance.json and a model card")


def list_runs(folder: Path) -> None:
    """Print the runs in a folder."""
    if not (paths := runs_in(folder)):
        console.print(f"There are no runs in {folder}. Begin one with `groupwise demo`.")
        return
    table = table_of("run", "algorithm", "task or data", "steps", "state", "best dev pass@1", "last change")
    for path in paths:
        table.add_row(*row(path))
    console.print(table)


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories in a folder, by name; behind links, too, each once."""
    found, seen, starts = list[Path](), set[str](), [str(folder)]
    for start in starts:  # links come last: a run in the folder has its own name
        for place, folders, files in os.walk(start):
            real = os.path.realpath(place)
            if real in seen:  # links may lead back
                folders.clear()
                continue
            seen.add(real)
            if {"config.toml", "ledger.jsonl"} <= {*files}:
                found.append(Path(place))
            starts += filter(os.path.islink, (os.path.join(place, name) for name in sorted(folders)))
    return sorted(found)


def row(path: Path) -> list[str]:
    """Return the cells of a run's line; a number that is not finite is shown, and counted beside the best."""
    from groupwise.runs.records import Records

    try:
        run = Records.open(path)
        recipe, planned = run.config, run.planned_steps
    except GroupwiseError:
        return [str(path), "", "", "", "its config.toml cannot be read", "", ""]
    tables = (recipe.get(name) for name in ("task", "data", "imported"))
    section = next((table for table in tables if isinstance(table, dict)), {})
    subject = next((section[key] for key in ("kind", "name", "source") if key in section), "")
    steps = run.metrics()
    dev = [line.get("pass_at_1") for line in run.metrics("dev")]
    firsts = [float(each[0]) for each in dev if isinstance(each, list) and each and isinstance(each[0], int | float)]
    sound = [value for value in firsts if math.isfinite(value)]
    best = f"{max(sound):.3f}" if sound else "-"
    if len(sound) < len(dev):
        best += f", {len(dev) - len(sound)} not finite"
    state = "finished" if run.finished else "unfinished"
    if damage := run.damage:
        state += f", {len(damage)} places damaged"
    last_change = datetime.fromtimestamp(run.directory.ledger.path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
    done = f"{steps[-1]['step'] + 1 if steps else 0}/{planned}"
    return [str(path), str(recipe.get("algorithm", "")), str(subject), done, state, best, last_change]


def text_summary(run: "Records") -> Text:
    """Return a run on one page of a terminal. Print it with rich; `.plain` is the text without style.

    Reads the run directory alone, so it works on a finished run, on a running one and on a copy without its weights.
    """
    from groupwise.evaluation.behaviour import run_patterns
    from groupwise.evaluation.metrics import METRICS, before_after, changes, show
    from groupwise.explorer.answers import examples
    from groupwise.explorer.run import best_line, costs, description, errors_line, pair_line

    pair = before_after(run)
    text = Text()
    text.append(f"{run.path}\n", style="bold").append(f"{description(run)}\n\n")
    text.append(f"{pair_line(run, pair)}\n\n")
    if pair:
        text.append(f"{'':<19}{'before':<20}{'after':<20}difference\n", style="dim")
        rows = changes(pair, run_patterns(run))
        for key in (*SUMMARY_ROWS, *(key for key in rows if key not in METRICS)):
            row, metric = rows[key], rows[key].metric
            before, after = (show(estimate, metric, with_unit=False) for estimate in (row.before, row.after))
            difference = show(row.difference, metric, "+", with_unit=False)
            name = f"{metric.name}, {metric.unit}"
            text.append(f"{name:<19}{before:<20}{after:<20}{difference}\n", style="bold" if key == "pass_at_1" else "")
        text.append("\n")
    verdicts, best = (METRICS["verdict_errors"].name, errors_line(run)), ("best checkpoint", best_line(run))
    for name, value in (verdicts, *costs(run).items(), best):
        text.append(f"{name:<17}", style="bold").append(f"{value}\n")
    samples = examples(pair, 1) if pair else []
    asked = samples[0].question if samples else ""
    asked = asked if 0 < len(asked) <= LONGEST_QUESTION and asked.isprintable() else "your question"
    command = shlex.join(["groupwise", "sample", str(run.best), asked]) if run.best else "not possible yet"
    text.append("sample from it\n", style="bold").append(f"  {command}\n")
    for example in samples:
        text.append(f"\n{example.question}", style="bold")
        text.append(f"  (reference answer {example.reference}; chosen for: {example.kind})\n", style="dim")
        for when, answer in example.answers.items():
            share = "" if answer.share is None else f"{100 * answer.share:.0f}"
            text.append(f"{when}, {share} % of its {answer.num_samples} samples correct; the first:\n", style="dim")
            text.append(f"  {printable(answer.text)}\n")
            style = "green" if answer.outcome == "correct" else "red"
            text.append(f"  {answer.outcome}: {printable(answer.evidence)}\n", style=style)
    return text


def printable(text: str) -> str:
    """Return a model's text so that it is safe in a terminal: control characters spelled out, lines indented."""
    characters = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text.strip())
    return characters.replace("\n", "\n  ")
