"""`groupwise export`: a run's newest checkpoint as a plain Hugging Face directory."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import RunPath, app, console


@app.command()
def export(
    run: RunPath,
    directory: Annotated[Path, typer.Argument(help="Where to write the model; an existing directory is replaced.")],
) -> None:
    """Write a run's newest checkpoint as a plain Hugging Face directory, with the record of how it was made.

    Example:

        groupwise export runs/arithmetic models/reasoner
    """
    from groupwise.models.export import export as export_run

    export_run(run, directory)
    console.print(f"{directory}: the newest checkpoint of {run}, with provenance.json and a model card")
