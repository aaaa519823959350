"""`groupwise budget`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def budget(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint directory, a hub name, or `base` for the shipped model.")
    ],
    prm: Annotated[Path | None, typer.Option(help="A process reward model: a checkpoint directory.")] = None,
    orm: Annotated[Path | None, typer.Option(help="An outcome reward model, trained on last labels.")] = None,
    reference: Annotated[str, typer.Option(help="The model that an implicit `--prm` was trained from.")] = "",
    beta: Annotated[float, typer.Option(help="Of an implicit `--prm`: what a nat above its reference counts.")] = 0.05,
    task: Annotated[
        str | None, typer.Option(help="Task name; default: the task of the run that the checkpoint is from.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="train, dev or test; default: test.")] = None,
    problems: Annotated[int | None, typer.Option(min=1, help="Number of problems; default: 200 of a split.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated: greedy, majority, best_of_n, weighted, beam, dvts, lookahead, revise, force, cut; "
            "default: those of a pool.",
        ),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Comma-separated numbers of samples.")] = "1,2,4,8,16,32,64",
    samples: Annotated[int, typer.Option(min=1, help="Samples of each problem's pool.")] = 64,
    difficulty_samples: Annotated[
        int, typer.Option(min=0, help="More samples, which tell how difficult a problem is; 0: labels only.")
    ] = 8,
    width: Annotated[int, typer.Option(min=1, help="Continuations of each slot that goes on in a search.")] = 4,
    lookahead: Annotated[int, typer.Option(min=1, help="Greedy steps that `lookahead` scores ahead.")] = 1,
    aggregate: Annotated[
        str, typer.Option(help="How searches join the scores of steps: last, min, product or mean.")
    ] = "last",
    step: Annotated[
        str, typer.Option(help="What ends a step: sentence, newline, equation, or a pattern.")
    ] = "sentence",
    temperature: Annotated[float, typer.Option(help="Sampling temperature, above 0.")] = 1.0,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    directory: Annotated[Path, typer.Option(help="Where samples, scores and figures are kept.")] = Path("runs/budget"),
    report: Annotated[Path | None, typer.Option(help="The page; default: report.html in the directory.")] = None,
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Measure what test-time compute is worth: accuracy over tokens of votes, choices by reward models and searches.

    One pool of samples per problem feeds every choice, with the exact mean over all subsets of each size. Killed, the
    same command goes on where it was.

    Examples:

        groupwise budget base --task arithmetic --problems 100 --samples 16 --budgets 1,2,4,8,16

        groupwise budget base --task word_problems --prm runs/prm/checkpoints/best --orm runs/orm/checkpoints/best

        groupwise budget base --task arithmetic --prm runs/prm/checkpoints/best --methods majority,best_of_n,beam,dvts
    """
    from groupwise.cli.budget import listed, numbers, run_budget

    dials = {
        "methods": listed(methods), "budgets": numbers(budgets), "samples": samples, "step": step, "seed": seed,
        "difficulty_samples": difficulty_samples, "width": width, "lookahead": lookahead, "aggregate": aggregate,
    }  # fmt: skip
    run_budget(
        checkpoint, console, json, report, dials, prm=prm, orm=orm, reference=reference, beta=beta, task=task,
        split=split, problems=problems, temperature=temperature, max_tokens=max_tokens, directory=directory,
        changes=overrides or [],
    )  # fmt: skip
