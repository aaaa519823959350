"""The application that commands register with, and what they share."""

import shutil
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

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
    "Begin with `groupwise train recipes/arithmetic.toml`; it needs no GPU, no hub and about two minutes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    cls=_Commands,
    pretty_exceptions_enable=False,
)
console = Console()

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the recipe, e.g. `--set grpo.group_size=8`. Repeatable."
    ),
]
