"""`groupwise compare`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def compare(
    comparison: Annotated[Path, typer.Argument(help="A TOML file of variants, e.g. recipes/compare.toml.")],
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run variants of a recipe with the same seeds and set them side by side, with intervals over seeds.

    Finished runs are kept, so an interrupted comparison resumes. No variant is called better unless the interval of its
    difference, paired by seed, excludes zero.

    Examples:

        groupwise compare recipes/compare.toml

        groupwise compare recipes/compare.toml --set seeds=2 --set directory=runs/try
    """
    from groupwise.cli.compare import run_comparison

    run_comparison(comparison, overrides or [], console, json)
