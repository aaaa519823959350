"""The application that commands register with, and what they share."""

import shutil
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from groupwise import __version__

WIDE = 80
"""Columns of a terminal from which on a command's help has tables."""


class _Commands(TyperGroup):
    """In a narrow terminal a command's help is plain and wraps: the tables of the other form would cut long names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand) and shutil.get_terminal_size().columns < WIDE:
            command.rich_markup_mode = None
        return command


app = typer.Typer(
    help="Groupwise teaches language models to reason: GRPO with verifiable rewards, on a laptop or a GPU.\n\n"
    "Begin with `groupwise demo`; it needs no GPU, no hub and a few minutes on two cores.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    cls=_Commands,
    pretty_exceptions_enable=False,
)
console = Console()


def _say_version(asked: bool) -> None:
    if asked:
        console.print(f"groupwise {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """What may stand before a command. The application's own help is above."""


Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the recipe, e.g. `--set grpo.group_size=8`. Repeatable."
    ),
]
