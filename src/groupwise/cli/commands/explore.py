"""`groupwise explore`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def explore(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Run directories; default: those in `runs`.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one page (.html) that needs no server, and end.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
) -> None:
    """Look at runs in a browser: figures, steps, groups, completions token by token; and a group to play with.

    The pages are served to this machine alone, read run directories and change nothing; a live run may go on.

    Examples:

        groupwise explore runs/arithmetic

        groupwise explore runs/arithmetic --export page.html
    """
    from groupwise.cli.explore import run_explore

    run_explore(runs or [], export, port, console)
