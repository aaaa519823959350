"""`groupwise sample`: its arguments and options, and what its help says."""

from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def sample(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint directory, a hub name, or `base` for the shipped model.")
    ],
    question: Annotated[str, typer.Argument(help="What to ask, e.g. 'What is 23 × 17?'.")],
    reference: Annotated[str | None, typer.Option(help="Reference answer; problems of the task are looked up.")] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, help="Completions.")] = 4,
    task: Annotated[str | None, typer.Option(help="Task whose template and verifier to use.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 takes the likeliest token.")
    ] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    overrides: Overrides = None,
) -> None:
    """Ask a checkpoint a question and see several completions with their verdicts.

    Example:

        groupwise sample base 'What is 23 × 17?' --samples 6
    """
    from groupwise.cli.sample import run_sample

    run_sample(
        console, checkpoint, question, reference, task=task, samples=samples, seed=seed, temperature=temperature,
        max_tokens=max_tokens, changes=overrides or [],
    )  # fmt: skip
