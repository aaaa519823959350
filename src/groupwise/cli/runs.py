"""`groupwise runs`: a table of run directories, or one of them on a page of the terminal."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from groupwise.cli.app import app, console

if TYPE_CHECKING:
    from groupwise.runs.directory import RunDirectory


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder of the run directories, or one of them.")] = Path("runs"),
) -> None:
    """List runs: the task of each, its steps, its best dev result; or print the summary of one.

    Examples:

        groupwise runs

        groupwise runs runs/arithmetic
    """
    if (folder / "config.toml").exists() and (folder / "ledger.jsonl").exists():
        from groupwise.cli.summary import text_summary
        from groupwise.runs.records import Records

        console.print(text_summary(Records.open(folder).intact()), soft_wrap=True)
        return
    list_runs(folder)


def list_runs(folder: Path) -> None:
    """Print the runs in a folder."""
    from groupwise.runs.directory import RunDirectory

    paths = runs_in(folder)
    if not paths:
        console.print(f"There are no runs in {folder}. Begin one with `groupwise demo`.")
        return
    table = Table()
    for column in ("run", "algorithm", "task or data", "steps", "state", "best dev pass@1", "last change"):
        table.add_column(column, overflow="fold")
    for path in paths:
        table.add_row(*row(RunDirectory(path)))
    console.print(table)


def runs_in(folder: Path) -> list[Path]:
    """Return the run directories in a folder, by name."""
    return sorted(
        config.parent for config in folder.glob("**/config.toml") if (config.parent / "ledger.jsonl").exists()
    )


def row(run: "RunDirectory") -> list[str]:
    """Return the cells of a run's line."""
    from groupwise.config import read_toml
    from groupwise.errors import ConfigError

    try:
        recipe = read_toml(run.config)
    except ConfigError:
        return [str(run.path), "", "", "", "its config.toml cannot be read", "", ""]
    section = recipe.get("task") or recipe.get("data") or {}
    subject = next((section[key] for key in ("kind", "name", "source") if key in section), "")
    lines = list(run.metrics.lines())
    num_done = max((line["step"] + 1 for line in lines if line.get("kind", "step") == "step"), default=0)
    dev = [line["pass_at_1"][0] for line in lines if line.get("kind") == "dev"]
    last_change = datetime.fromtimestamp(run.ledger.path.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
    state = "finished" if run.finished.exists() else "unfinished"
    best = f"{max(dev):.3f}" if dev else "-"
    steps = f"{num_done}/{recipe['run']['num_steps']}"
    return [str(run.path), recipe["algorithm"], subject, steps, state, best, last_change]
