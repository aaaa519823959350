"""`groupwise runs`: a table of run directories."""

from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from groupwise.config import read_toml
from groupwise.errors import ConfigError
from groupwise.runs.directory import RunDirectory


def list_runs(folder: Path, console: Console) -> None:
    """Print the runs in a folder."""
    runs = sorted(
        config.parent for config in folder.glob("**/config.toml") if (config.parent / "ledger.jsonl").exists()
    )
    if not runs:
        console.print(f"There are no runs in {folder}. Begin one with `groupwise demo`.")
        return
    table = Table()
    for column in ("run", "algorithm", "task or data", "steps", "state", "best dev pass@1", "last change"):
        table.add_column(column, overflow="fold")
    for path in runs:
        table.add_row(*_row(RunDirectory(path)))
    console.print(table)


def _row(run: RunDirectory) -> list[str]:
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
