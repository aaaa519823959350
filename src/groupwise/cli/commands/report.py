"""`groupwise report`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Write a run's page (report.html) and print its summary.

    Example:

        groupwise report runs/arithmetic
    """
    from groupwise.cli.summary import text_summary
    from groupwise.evaluation.run_data import load_run
    from groupwise.explorer.export import write_report
    from groupwise.runs.directory import find_run

    page = write_report(find_run(run).path)
    console.print(text_summary(load_run(run)), soft_wrap=True)
    console.print(f"[dim]{page}[/]")
