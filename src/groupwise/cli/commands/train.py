"""`groupwise train`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def train(
    recipe: Annotated[
        Path,
        typer.Argument(help="A TOML recipe, the name of a shipped one, e.g. `arithmetic`, or a run's config.toml."),
    ],
    overrides: Overrides = None,
    extend: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RECIPE",
            help="Lay another recipe over this one, before --set: a file, or one that comes with Groupwise, e.g. "
            "`--extend algorithms/dapo.toml`. Repeatable.",
        ),
    ] = None,
    restart: Annotated[bool, typer.Option(help="Delete the run directory first and start over.")] = False,
    ranks: Annotated[
        int, typer.Option(min=1, help="Processes that train the model together, each with a share of it.")
    ] = 1,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin in spite of what the checks before a run refuse.")
    ] = False,
) -> None:
    """Run a recipe. The same command resumes an interrupted run; Ctrl-C stops after the step in hand.

    The checks of `groupwise preflight` that cost nothing are done first.

    Examples:

        groupwise train arithmetic

        groupwise train recipes/arithmetic.toml --set run.seed=1 --set run.directory=runs/seed1

        groupwise train recipes/arithmetic.toml --extend algorithms/dapo.toml

        groupwise train recipes/gsm8k.toml --set model.path=Qwen/Qwen2.5-0.5B-Instruct

        groupwise train recipes/gsm8k.toml --ranks 8

        torchrun --nproc-per-node 8 -m groupwise train recipes/gsm8k.toml
    """
    from groupwise.config import named, read_toml

    read_toml(Path(named(recipe)[0]))  # a missing or malformed file answers before torch is loaded
    from groupwise.cli.preflight import before_training
    from groupwise.cli.train import run_recipe
    from groupwise.ranks.group import rank_of_launcher
    from groupwise.trainers import load_recipe

    settings = load_recipe(recipe, overrides or [], extend or [])
    if ranks > 1:
        from groupwise.ranks import launch

        changes = [part for change in overrides or [] for part in ("--set", change)]
        extends = [part for name in extend or [] for part in ("--extend", name)]
        flags = [flag for flag, is_set in (("--restart", restart), ("--anyway", anyway)) if is_set]
        launch(ranks, ["train", str(recipe), *changes, *extends, *flags])
        return
    if rank_of_launcher() == 0:
        before_training(settings, anyway, console)
    run_recipe(settings, restart, console)
