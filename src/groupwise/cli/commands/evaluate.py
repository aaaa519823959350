"""`groupwise eval`: its arguments and options, and what its help says."""

from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command("eval")
def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint directory, a hub name, or `base` for the shipped model.")
    ],
    task: Annotated[
        str | None, typer.Option(help="Task name; default: the task of the run that the checkpoint is from.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="train, dev or test; default: test, or all rows of a file you name.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Completions per problem.")] = 8,
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="Number of problems, from the first; default: 200 of a split, all rows of a file."),
    ] = None,
    against: Annotated[str | None, typer.Option(help="A second checkpoint: adds the paired difference.")] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Sampling temperature; 0 takes the likeliest token.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Keep the k likeliest tokens; 0 keeps all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Keep the likeliest tokens up to this probability.")
    ] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    second: Annotated[
        str | None, typer.Option(help="A second verifier, e.g. `math`, that judges correct completions again.")
    ] = None,
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Measure a checkpoint: pass@1 with a 95 % interval, unbiased pass@k, majority vote, behaviours, each difficulty.

    Examples:

        groupwise eval base --task arithmetic --samples 16

        groupwise eval runs/arithmetic/checkpoints/best --against base

        groupwise eval base --task jsonl --set task.path=mine.jsonl

        groupwise eval base --task word_problems --set 'task.languages=["zh"]' --json

        groupwise eval base --task arithmetic --set 'behaviour.patterns.checks.en=["hold on"]'
    """
    from groupwise.cli.evaluate import run_evaluation

    run_evaluation(
        checkpoint, console, json, against=against, task=task, split=split, problems=problems, samples=samples,
        seed=seed, temperature=temperature, top_k=top_k, top_p=top_p, max_tokens=max_tokens, second=second,
        changes=overrides or [],
    )  # fmt: skip
