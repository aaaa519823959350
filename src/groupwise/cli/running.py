"""Commands that run a model: each parses arguments and calls one function.

Heavy imports are inside the commands, so that `--help` and mistakes in a recipe answer at once.
"""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command("init")
def start_project(directory: Annotated[Path, typer.Argument(help="A new or an empty directory.")]) -> None:
    """Write a small project of your own - a reward, problems, a recipe and a test - that trains at once.

    Example:
        groupwise init mine && groupwise train mine/recipe.toml
    """
    from groupwise.cli.init import write_project

    names = ", ".join(file.name for file in write_project(directory))
    console.print(f"{directory}: {names}\nNext: groupwise train {directory}/recipe.toml", highlight=False)


@app.command()
def demo(
    overrides: Overrides = None,
    restart: Annotated[bool, typer.Option("--restart", help="Delete an earlier run of the demo first.")] = False,
) -> None:
    """Teach the shipped base model products of two-digit numbers, measure it before and after, ask it a question.

    It trains the recipe `arithmetic` into runs/arithmetic, in two to four minutes on two cores; it needs no checkout,
    no GPU and no network. The same command resumes an interrupted demo.

    Example:
        groupwise demo
    """
    from groupwise.cli.demo import run_demo

    run_demo(overrides or [], restart, console)


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
        from groupwise.ranks.launch import launch

        changes = [part for change in overrides or [] for part in ("--set", change)]
        extends = [part for name in extend or [] for part in ("--extend", name)]
        flags = [flag for flag, is_set in (("--restart", restart), ("--anyway", anyway)) if is_set]
        launch(ranks, ["train", str(recipe), *changes, *extends, *flags])
        return
    if rank_of_launcher() == 0:
        before_training(settings, anyway, console)
    run_recipe(settings, restart, console)


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
    from groupwise.cli.preflight import run_preflight
    from groupwise.health.preflight import PreflightOptions

    options = PreflightOptions(problems, samples, price_per_hour)
    if status := run_preflight(recipe, overrides or [], options, leave_out or [], write, console, json):
        raise typer.Exit(status)


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
    report: Annotated[Path | None, typer.Option(help="The page; default: budget.html in the directory.")] = None,
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
