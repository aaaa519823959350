"""`groupwise eval-steps`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command(name="eval-steps")
def eval_steps(
    model: Annotated[Path, typer.Argument(help="A process reward model: a checkpoint directory.")],
    file: Annotated[Path, typer.Argument(help="Labelled steps, JSON lines.")],
    dev: Annotated[Path | None, typer.Option(help="Other labelled steps, to choose the threshold on.")] = None,
    format: Annotated[
        str,
        typer.Option(help="groupwise, big_bench_mistake, mr_gsm8k, processbench, math_shepherd, prm800k or math_aps."),
    ] = "groupwise",
    reference: Annotated[str, typer.Option(help="Of an implicit one: the model that it was trained from.")] = "",
    beta: Annotated[float, typer.Option(help="Of an implicit one: what a nat above its reference counts.")] = 0.05,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Measure how well a process reward model finds the first mistake of a working: ProcessBench's F1 and others.

    Examples:

        groupwise eval-steps runs/prm/checkpoints/step-200 steps_test.jsonl --dev steps_dev.jsonl

        groupwise eval-steps runs/prm/checkpoints/step-200 multistep_arithmetic.jsonl --format big_bench_mistake
    """
    from groupwise.cli.steps import run_step_evaluation

    run_step_evaluation(model, file, dev, format, reference, beta, console, json)
