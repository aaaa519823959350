"""`groupwise pipeline`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def pipeline(
    recipe: Annotated[
        Path, typer.Argument(help="A TOML recipe with [stages], or the pipeline.toml of an earlier run.")
    ],
    overrides: Overrides = None,
    only: Annotated[str | None, typer.Option(metavar="STAGE", help="Run nothing but this stage.")] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="STAGE", help="Run this stage, and what depends on it, again, finished or not."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and why; run nothing.")] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Run it with seeds 0, 1, ..., each in its own directory, and compare them.")
    ] = 1,
    jobs: Annotated[
        int,
        typer.Option(
            min=1, help="Seeds that run at the same time, each in its own process with its share of the processor."
        ),
    ] = 1,
) -> None:
    """Run the stages of a pipeline: DeepSeek-R1's, RLHF's, or your own.

    A finished stage with the same settings, inputs and code is skipped; a changed one runs again, and so does what
    depends on it. If it is killed, the same command resumes inside the stage it was in.

    Examples:

        groupwise pipeline recipes/r1.toml

        groupwise pipeline recipes/r1.toml --dry-run

        groupwise pipeline recipes/r1.toml --seeds 4 --jobs 2 --set pipeline.directory=runs/r1-seeds

        groupwise pipeline recipes/r1.toml --from sft
    """
    from groupwise.config import named, read_toml

    read_toml(Path(named(recipe)[0]))  # a missing or malformed file answers before torch is loaded
    from groupwise.cli.pipeline import PipelineRequest, run

    run(PipelineRequest(recipe, tuple(overrides or []), only, start, dry_run, seeds, jobs), console)
