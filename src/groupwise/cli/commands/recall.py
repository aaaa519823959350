"""`groupwise recall`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def recall(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of recall, e.g. recipes/recall.toml.")],
    overrides: Overrides = None,
    restart: Annotated[bool, typer.Option("--restart", help="Delete what an earlier call left first.")] = False,
) -> None:
    """Collect a corpus of mathematics from pages, in rounds, and write a report (DeepSeekMath's way).

    Killed or interrupted, the same command goes on. Where people annotate, it stops and names the file to fill in.

    Examples:

        groupwise recall recipes/recall.toml

        groupwise recall recipes/recall.toml --set annotator.kind=file --set annotator.path=patterns.toml
    """
    from groupwise.cli.recall import recall_with_display

    recall_with_display(recipe, overrides or [], restart, console)
