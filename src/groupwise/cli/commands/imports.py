"""`groupwise import`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command("import")
def import_run(
    system: Annotated[str, typer.Argument(help="trl, verl, prime-rl, wandb or tensorboard.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="TRL, prime-rl: output_dir. verl: trainer.rollout_data_dir. W&B: run-ID.wandb, or its history as "
            ".csv or .jsonl. TensorBoard: an event file, or its folder."
        ),
    ],
    run: Annotated[Path, typer.Argument(help="A new directory, for the run.")],
    correct: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[>BOUND]",
            help="Which part of the reward, or other number, says that an answer is "
            "correct; above 0.5 unless a bound is given.",
        ),
    ] = None,
    scalars: Annotated[
        Path | None, typer.Option(metavar="FILE", help='verl: what trainer.logger = ["file"] wrote.')
    ] = None,
    dev: Annotated[Path | None, typer.Option(metavar="DIR", help="verl: trainer.validation_data_dir.")] = None,
    scalar: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OURS=THEIRS", help="W&B, TensorBoard: which of their names is our reward, ... Repeatable."
        ),
    ] = None,
) -> None:
    """Make a run directory of a run of another system, so that `groupwise doctor` and `groupwise explore` read it.

    What the other system did not record stays empty, and is named.

    Examples:

        groupwise import trl outputs/grpo runs/imported --correct accuracy_reward

        groupwise import verl rollouts runs/imported --scalars metrics.jsonl --dev validation

        groupwise import wandb wandb/offline-run-20260101_000000-abc runs/imported

        groupwise import tensorboard logs runs/imported --scalar reward=charts/return
    """
    from groupwise.cli.imports import run_import

    run_import(system, source, run, correct, scalars, dev, scalar or [], console)
