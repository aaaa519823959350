"""`groupwise preflight`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command("preflight")
def check_recipe(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of reinforcement learning, or of a pipeline.")],
    overrides: Overrides = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Leave a check out, e.g. `rehearsal`. Repeatable.")
    ] = None,
    problems: Annotated[int, typer.Option(min=2, help="Training problems that are sampled.")] = 32,
    samples: Annotated[int, typer.Option(min=2, help="Completions of each; a larger group size counts.")] = 16,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="What an hour of this machine costs; the run's cost is then said.")
    ] = None,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON to a file, too.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Say before a run what would go wrong with it: GO, GO WITH WARNINGS or NO-GO (exit status 2), with reasons.

    Settings, problems, memory and disk; reference answers and shortcuts through the verifier; prompts as tokens; what
    the model can learn; and two whole steps on a copy, with their resume. One to two minutes for the shipped recipes.
    Of a pipeline every stage is checked as far as it can be before the stages in front of it have run.

    Examples:

        groupwise preflight recipes/arithmetic.toml

        groupwise preflight recipes/gsm8k.toml --leave-out rehearsal --price-per-hour 2.5

        groupwise preflight recipes/r1.toml --leave-out sample --leave-out rehearsal
    """
    from groupwise.config import named, read_toml

    read_toml(Path(named(recipe)[0]))  # a missing or malformed file answers before torch is loaded
    from groupwise.checks.preflight import PreflightOptions
    from groupwise.cli.preflight import run_preflight

    options = PreflightOptions(problems, samples, price_per_hour)
    if status := run_preflight(recipe, overrides or [], options, leave_out or [], write, console, json):
        raise typer.Exit(status)
