"""`groupwise import`: a run directory of a run of another system."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console

PRIME_RL = "prime-rl"


@app.command("import")
def import_run(
    system: Annotated[str, typer.Argument(help="trl, verl, prime-rl, wandb or tensorboard.")],
    source: Annotated[Path, typer.Argument(
        help="TRL, prime-rl: output_dir. verl: trainer.rollout_data_dir. W&B: run-ID.wandb, or its history as "
        ".csv or .jsonl. TensorBoard: an event file, or its folder.")],
    run: Annotated[Path, typer.Argument(help="A new directory, for the run.")],
    correct: Annotated[str | None, typer.Option(metavar="NAME[>BOUND]",
        help="Which part of the reward, or other number, says that an answer is "
        "correct; above 0.5 unless a bound is given.")] = None,
    scalars: Annotated[
        Path | None, typer.Option(metavar="FILE", help='verl: what trainer.logger = ["file"] wrote.')] = None,
    dev: Annotated[Path | None, typer.Option(metavar="DIR", help="verl: trainer.validation_data_dir.")] = None,
    scalar: Annotated[list[str] | None, typer.Option(
        metavar="OURS=THEIRS", help="W&B, TensorBoard: which of their names is our reward, ... Repeatable.")] = None,
) -> None:  # fmt: skip
    """Make a run directory of a run of another system, so that `groupwise doctor` and `groupwise explore` read it.

    What the other system did not record stays empty, and is named.

    Examples:

        groupwise import trl outputs/grpo runs/imported --correct accuracy_reward

        groupwise import verl rollouts runs/imported --scalars metrics.jsonl --dev validation

        groupwise import wandb wandb/offline-run-20260101_000000-abc runs/imported

        groupwise import tensorboard logs runs/imported --scalar reward=charts/return
    """
    from groupwise.errors import ConfigError
    from groupwise_lab.imports import READERS, read_prime_rl, read_scalars, read_trl, read_verl, write_imported

    known = ("trl", "verl", PRIME_RL, *sorted(READERS))
    if system not in known:
        raise ConfigError(f"there is no import from {system!r}; allowed are {', '.join(known)}")
    if (dev and system != "verl") or (scalars and system not in ("verl", PRIME_RL)):
        raise ConfigError("--scalars and --dev are for verl: the others have both in one place")
    if system in READERS:
        foreign = read_scalars(system, source, scalar or [])
    elif scalar:
        raise ConfigError("--scalar is for wandb and tensorboard: the names of the others are known")
    elif system == PRIME_RL:
        foreign = read_prime_rl(source, scalars)
    else:
        foreign = read_trl(source) if system == "trl" else read_verl(source, scalars, dev)
    made = write_imported(foreign, system, source, run, correct)
    console.print(
        f"{run}: {made.num_steps} steps, {made.num_completions:,} completions, {made.num_evaluations} evaluations",
        highlight=False, markup=False,
    )  # fmt: skip
    for fault in foreign.damage:
        console.print(f"Look at: {fault}", style="yellow", markup=False, soft_wrap=True)
    if foreign.not_numbers:
        names = ", ".join(foreign.not_numbers[:20]) + (", ..." if foreign.not_numbers[20:] else "")
        console.print(f"No numbers, and left out: {names}", style="dim", markup=False)
    if made.lacks:
        console.print(f"Not recorded there: {', '.join(made.lacks)}", style="dim", markup=False)
    if "sampled_correct" in made.lacks and made.parts:
        console.print(
            f"Most rules need the share of correct answers: --correct NAME, one of {', '.join(made.parts)}",
            style="yellow", markup=False, soft_wrap=True,
        )  # fmt: skip
    others = sorted({name for values in foreign.theirs.values() for name in values})
    if made.lacks and others and system in READERS:
        names = ", ".join(others[:20]) + (", ..." if others[20:] else "")
        console.print(f"Unless it is one of these (--scalar OURS=THEIRS): {names}", style="dim", markup=False)
    place = shlex.quote(str(run))
    console.print(f"Next: groupwise doctor {place}; groupwise explore {place}", markup=False, highlight=False)
