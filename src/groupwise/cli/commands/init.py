"""`groupwise init`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command("init")
def start_project(directory: Annotated[Path, typer.Argument(help="A new or an empty directory.")]) -> None:
    """Write a small project of your own - a reward, problems, a recipe and a test - that trains at once.

    Example:

        groupwise init mine && groupwise train mine/recipe.toml
    """
    from groupwise.cli.init import write_project

    names = ", ".join(file.name for file in write_project(directory))
    console.print(f"{directory}: {names}\nNext: groupwise train {directory}/recipe.toml", highlight=False)
