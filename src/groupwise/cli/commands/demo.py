"""`groupwise demo`: its arguments and options, and what its help says."""

from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def demo(
    overrides: Overrides = None,
    restart: Annotated[bool, typer.Option("--restart", help="Delete an earlier run of the demo first.")] = False,
) -> None:
    """Teach the shipped base model products of two-digit numbers, measure it before and after, ask it a question.

    It trains the recipe `arithmetic` into runs/arithmetic, in a few minutes on two cores; it needs no checkout,
    no GPU and no network. The same command resumes an interrupted demo.

    Example:

        groupwise demo
    """
    from groupwise.cli.demo import run_demo

    run_demo(overrides or [], restart, console)
