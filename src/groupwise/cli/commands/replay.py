"""`groupwise replay`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[int, typer.Option(min=0, help="Training step (0-based).")],
    problem: Annotated[str, typer.Option(help="Problem id, e.g. arithmetic/23x17.")],
    sample: Annotated[int, typer.Option(min=0, help="Completion within the group.")] = 0,
) -> None:
    """Regenerate a recorded completion and say whether it is identical, token by token and bit by bit.

    Example:

        groupwise replay runs/arithmetic --step 37 --problem arithmetic/23x17 --sample 5
    """
    from groupwise.cli.replay import run_replay

    if not run_replay(run, step, problem, sample, console):
        raise typer.Exit(1)
