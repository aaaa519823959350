"""`groupwise compare`: a bar while the variants run, then the table."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from groupwise.trainers.compare import compare_variants


def run_comparison(file: Path, overrides: Sequence[str], console: Console, as_json: bool) -> None:
    """Do what is left to do and print the table."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_hidden = as_json or not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=is_hidden) as progress:
        bar = progress.add_task("runs", total=None)
        table = compare_variants(file, overrides, lambda done, total: progress.update(bar, completed=done, total=total))
    if as_json:
        print(json.dumps(table.as_dict(), indent=1))
        return
    console.print(Markdown(table.as_markdown()))
    console.print(
        f"{table.rows[0].num_seeds} seeds each; 95 % intervals over seeds (Student). A variant is better or worse only "
        "where the interval of its difference, paired by seed, excludes zero. "
        f"Written to {table.directory / 'comparison.md'}"
    )
