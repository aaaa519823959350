"""`groupwise runs`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="The folder of the run directories.")] = Path("runs")) -> None:
    """List runs: what they trained, how far they got, their best dev result.

    Example:

        groupwise runs
    """
    from groupwise.cli.listing import list_runs

    list_runs(folder, console)
