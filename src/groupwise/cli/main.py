"""The other commands, and the entry point, which reports an error in one sentence.

Heavy imports are inside the commands, so that `--help` and mistakes in a recipe answer at once.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli import running  # noqa: F401  registers its commands, which come first in the help
from groupwise.cli.app import Overrides, app, console
from groupwise.errors import GroupwiseError


@app.command()
def verify(
    verifier: Annotated[str, typer.Argument(help="A verifier's name, e.g. `math`.")],
    completion: Annotated[
        str | None, typer.Argument(help="The completion; without it, or with `-`, standard input is read.")
    ] = None,
    reference: Annotated[str, typer.Option(help="The reference answer.")] = "",
    file: Annotated[Path | None, typer.Option(help="Read the completion from a file.")] = None,
    question: Annotated[str, typer.Option(help="The question, for verifiers that read it.")] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=JSON|FILE",
            help="What else the verifier needs, e.g. `--data target=16` (repeatable); or a file of problems, whose "
            "reference answers are checked instead.",
        ),
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the question (ISO 639-1).")] = "en",
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    r"""Judge one completion and explain the verdict step by step.

    Examples:
        groupwise verify math --reference 391 'So it is \boxed{391}.'

        groupwise verify countdown --data numbers='[3, 5, 2]' --data target=16 '\boxed{(3+5)*2}'

        groupwise verify math --data problems.jsonl --set task.answer_field=solution
    """
    from groupwise.cli.verify import check_data, read_completion, read_data, run_verify
    from groupwise.types import Problem

    if data and len(data) == 1 and data[0].endswith((".jsonl", ".json", ".parquet")):
        if not check_data(verifier, Path(data[0]), overrides or [], console):
            raise typer.Exit(1)
        return
    problem = Problem("asked", question, reference, language=language, data=read_data(data or []))
    if not run_verify(verifier, read_completion(completion, file), problem, overrides or [], console, json):
        raise typer.Exit(1)


@app.command()
def audit(
    subject: Annotated[
        str, typer.Argument(help="A verifier's name, `path/to/file.py:function` of your own, or `sandbox`.")
    ],
    cases: Annotated[list[Path] | None, typer.Option(help="Labelled cases (JSON lines). Repeatable.")] = None,
    probes: Annotated[
        list[Path] | None, typer.Option(help="Programs for the sandbox (JSON lines). Repeatable.")
    ] = None,
    tier: Annotated[list[str] | None, typer.Option(help="Judge only cases of this tier. Repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="Task whose problems are attacked.")] = None,
    reference: Annotated[list[str] | None, typer.Option(help="A reference answer to attack. Repeatable.")] = None,
    problems: Annotated[int, typer.Option(min=1, help="Problems of the task to attack.")] = 4,
    overrides: Overrides = None,
    report: Annotated[Path | None, typer.Option(help="Write a page (.html), and the JSON beside it.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Attack a verifier, your own reward function or the sandbox, or score labelled cases; report every wrong reward.

    The exit status is 0 only when every decided case has its expected verdict.

    A function of your own is `reward(prompt, completion, reference) -> float`; above 0.5 counts as correct.

    Examples:
        groupwise audit math --report audit.html

        groupwise audit math --cases cases.jsonl --tier core

        groupwise audit rewards.py:reward --task arithmetic

        groupwise audit sandbox --probes probes.jsonl
    """
    if subject == "sandbox":
        from groupwise.cli.audit import run_sandbox_audit

        passed = run_sandbox_audit(probes or [], overrides or [], report, json, console)
    else:
        from groupwise.cli.audit import run_audit

        passed = run_audit(
            subject, report, json, console, cases=cases or (), tiers=tier or (), task=task, references=reference or (),
            problems=problems, changes=overrides or (),
        )  # fmt: skip
    if not passed:
        raise typer.Exit(1)


@app.command("doctor")
def examine(
    run: Annotated[Path | None, typer.Argument(help="A run directory, finished or not.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="SEVERITY", help="Exit with status 3 at note, warning or critical findings and worse."),
    ] = None,
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Say what a rule computes, and why.")] = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Say what this machine is and what works on it, for a bug report.")
    ] = False,
) -> None:
    """Say what is wrong with a run: with numbers, places and what to change. Reads its directory alone.

    Examples:
        groupwise doctor runs/arithmetic

        groupwise doctor runs/arithmetic --fail-on warning

        groupwise doctor --explain entropy_collapse

        groupwise doctor --environment
    """
    if environment:
        from groupwise.cli.environment import show_environment

        show_environment(console, json)
        return
    from groupwise.cli import doctor
    from groupwise.doctor import Severity
    from groupwise.errors import ConfigError

    if explain is not None:
        doctor.explain(explain, console)
        return
    if run is None:
        raise ConfigError("doctor needs a run directory, --explain RULE or --environment")
    if fail_on is not None and fail_on not in list(Severity):
        raise ConfigError(f"--fail-on = {fail_on!r} is not allowed; allowed are {', '.join(Severity)}")
    if status := doctor.run_doctor(run, console, json, Severity(fail_on) if fail_on else None):
        raise typer.Exit(status)


@app.command()
def oracle(
    section: Annotated[list[str] | None, typer.Option(help="Show this section only. Repeatable.")] = None,
    combinations: Annotated[
        bool, typer.Option("--all", help="Add every advantage with every loss and aggregation.")
    ] = False,
    tokens: Annotated[
        int | None, typer.Option(min=2, help="Tokens of the vocabulary, the stop token included.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Token limit of a completion.")] = None,
    group_size: Annotated[int | None, typer.Option(min=2, help="Completions per prompt.")] = None,
    prompts: Annotated[int | None, typer.Option(min=1, help="Prompts per batch.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of policies and rewards.")] = 0,
    write: Annotated[
        Path | None, typer.Option(help="Write the table of algorithms with the figures (Markdown).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Compare every estimator with the true policy gradient, in worlds so small that every batch can be enumerated.

    Columns: `cosine` between the expected gradient E[g] and the true one ∇J (1: the right direction); `scale`, the
    length of E[g] along ∇J (a learning rate makes up for it); `bias` = |E[g] - ∇J| / |∇J|, which no number of samples
    averages away; `noise`, one batch's standard deviation in units of |E[g]| (n batches divide it by √n).

    Each section has a world of its own size; a size given here applies to all. Nothing is sampled, so the
    figures are exact and the same every time.

    Examples:
        groupwise oracle

        groupwise oracle --section prompts --group-size 4

        groupwise oracle --section kl --seed 1 --json
    """
    from groupwise.cli.oracle import OracleRequest, run_oracle
    from groupwise.oracle.toys import Dials

    dials = Dials(tokens, length, group_size, prompts, seed)
    run_oracle(OracleRequest(tuple(section or []), combinations, dials, write, json), console)


@app.command("claims")
def examine_claims(
    name: Annotated[str | None, typer.Argument(help="One claim, by its file's name; default: all.")] = None,
    folder: Annotated[Path, typer.Option(help="The ledger: arms.toml, and a file for each claim.")] = Path("claims"),
    listing: Annotated[bool, typer.Option("--list", help="Say what is missing, and run nothing.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Write the page of what is there, and run nothing.")] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Delete the runs of these claims first.")] = False,
    seeds: Annotated[int, typer.Option(min=0, help="Seeds of each; 0: as many as the claim says.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at one time, each with its share of the processor.")] = 1,
    arm: Annotated[list[str] | None, typer.Option(help="Run nothing but this arm. Repeatable.")] = None,
    finished: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM=DIRECTORY", help="Read finished runs; `{seed}` stands for the seed. Repeatable."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Where the page is written; default: docs/claims.md beside the ledger.")
    ] = None,
) -> None:
    """Run what decides the claims of a ledger, and write what holds here, what does not, and what is not decided.

    Killed, the same command goes on where it was; results that are there are not measured again.

    Examples:
        groupwise claims --list

        groupwise claims group_size --seeds 5

        groupwise claims --arm r1 --finished 'r1=runs/r1-seeds/seed-{seed}'
    """
    from groupwise.cli.claims import Asked, run_claims

    asked = Asked(folder, name, listing, page, rerun, seeds, jobs, tuple(arm or ()), tuple(finished or ()), write)
    run_claims(asked, console)


@app.command()
def replay(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[int, typer.Option(min=0, help="Training step (0-based).")],
    problem: Annotated[str, typer.Option(help="Problem id, e.g. arithmetic/23x17.")],
    sample: Annotated[int, typer.Option(min=0, help="Completion within the group.")] = 0,
) -> None:
    """Regenerate a recorded completion and say whether it is identical, token by token and bit by bit.

    Example:
        groupwise replay runs/arithmetic --step 37 --problem arithmetic/23x17 --sample 5
    """
    from groupwise.cli.replay import run_replay

    if not run_replay(run, step, problem, sample, console):
        raise typer.Exit(1)


@app.command()
def explore(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Run directories; default: those in `runs`.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one page (.html) that needs no server, and end.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any that is free.")] = 0,
) -> None:
    """Look at runs in a browser: figures, steps, groups, completions token by token; and a group to play with.

    The pages are served to this machine alone, read run directories and change nothing; a live run may go on.

    Examples:
        groupwise explore runs/arithmetic

        groupwise explore runs/arithmetic --export page.html
    """
    from groupwise.cli.explore import run_explore

    run_explore(runs or [], export, port, console)


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


@app.command()
def report(run: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Write a run's page (report.html) and picture (report.png), and print its summary.

    Example:
        groupwise report runs/arithmetic
    """
    from groupwise.evaluation.run_data import load_run
    from groupwise.pages.run import write_report
    from groupwise.pages.summary import text_summary
    from groupwise.runs.directory import find_run

    page = write_report(find_run(run).path)
    console.print(text_summary(load_run(run)), soft_wrap=True)
    console.print(f"[dim]{page}[/]")


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


@app.command()
def recall(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of recall, e.g. recipes/recall.toml.")],
    overrides: Overrides = None,
    restart: Annotated[bool, typer.Option("--restart", help="Delete what an earlier call left first.")] = False,
) -> None:
    """Collect a corpus of mathematics from pages, in rounds, and write a report (DeepSeekMath's way).

    Killed or interrupted, the same command goes on. Where people annotate, it stops and names the file to fill in.

    Examples:
        groupwise recall recipes/recall.toml

        groupwise recall recipes/recall.toml --set annotator.kind=file --set annotator.path=patterns.toml
    """
    from groupwise.cli.recall import recall_with_display

    recall_with_display(recipe, overrides or [], restart, console)


@app.command()
def compare(
    comparison: Annotated[Path, typer.Argument(help="A TOML file of variants, e.g. recipes/compare.toml.")],
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run variants of a recipe with the same seeds and set them side by side, with intervals over seeds.

    Finished runs are kept, so an interrupted comparison resumes. No variant is called better unless the interval of its
    difference, paired by seed, excludes zero.

    Examples:
        groupwise compare recipes/compare.toml

        groupwise compare recipes/compare.toml --set seeds=2 --set directory=runs/try
    """
    from groupwise.cli.compare import run_comparison

    run_comparison(comparison, overrides or [], console, json)


@app.command()
def memory(
    recipe: Annotated[Path, typer.Argument(help="A TOML recipe of reinforcement learning.")],
    overrides: Overrides = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 64,
    ranks: Annotated[
        int, typer.Option(min=1, help="Processes that train the model together; one of them is shown.")
    ] = 1,
) -> None:
    """Predict how much memory a recipe needs, part by part, without loading the model.

    Examples:
        groupwise memory recipes/arithmetic.toml

        groupwise memory recipes/ppo.toml --set model.path=Qwen/Qwen2.5-0.5B-Instruct --prompt-tokens 256

        groupwise memory recipes/gsm8k.toml --set model.path=Qwen/Qwen3-8B --ranks 8
    """
    from groupwise.cli.memory import show_memory

    show_memory(recipe, overrides or [], prompt_tokens, ranks, console)


@app.command()
def keys(
    section: Annotated[str | None, typer.Argument(help="A section, for example `optimizer`; default: all.")] = None,
    kind: Annotated[str | None, typer.Option(help="One kind of the section only.")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the reference of all keys to this file.")] = None,
) -> None:
    """List what a recipe may hold: every key, its allowed values, its default and its meaning.

    Examples:
        groupwise keys optimizer

        groupwise keys data --kind generated
    """
    from rich.markdown import Markdown

    from groupwise.cli import keys as reference

    if write:
        write.write_text(reference.page(), encoding="utf-8")
        console.print(f"written to {write}")
        return
    document = reference.reference()
    headings = reference.choose(document, section, kind) if section else document.headings
    console.print(Markdown(reference.markdown(document, headings)))


@app.command()
def runs(folder: Annotated[Path, typer.Argument(help="The folder of the run directories.")] = Path("runs")) -> None:
    """List runs: what they trained, how far they got, their best dev result.

    Example:
        groupwise runs
    """
    from groupwise.cli.listing import list_runs

    list_runs(folder, console)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    directory: Annotated[Path, typer.Argument(help="Where to write the model; an existing directory is replaced.")],
) -> None:
    """Write a run's newest checkpoint as a plain Hugging Face directory, with the record of how it was made.

    Example:
        groupwise export runs/arithmetic models/reasoner
    """
    from groupwise.pages.export import export as export_run

    export_run(run, directory)
    console.print(f"{directory}: the newest checkpoint of {run}, with provenance.json and a model card")


@app.command("new-model")
def new_model(
    directory: Annotated[Path, typer.Argument(help="Where to write the model directory.")],
    architecture: Annotated[str, typer.Option(help="qwen2, qwen3, llama or mistral.")] = "qwen2",
    hidden_size: Annotated[int, typer.Option(min=8, help="Width.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Blocks.")] = 2,
    context_length: Annotated[int, typer.Option(min=8, help="Longest sequence, in tokens.")] = 4096,
    seed: Annotated[int, typer.Option(help="Seed of the weights.")] = 0,
) -> None:
    """Write a small model with random weights and a byte tokenizer, to try a recipe end to end without a hub.

    Example:
        groupwise new-model models/tiny && groupwise train recipes/gsm8k.toml --set model.path=models/tiny
    """
    from groupwise.config import parse
    from groupwise.models.checkpoint import save_checkpoint
    from groupwise.models.loading import quiet_transformers
    from groupwise.models.new_model import NewModel, byte_tokenizer, new_policy
    from groupwise.runs.atomic import refuse_to_replace

    quiet_transformers()
    refuse_to_replace(directory)
    shape = {"architecture": architecture, "hidden_size": hidden_size, "num_hidden_layers": layers}
    settings = {"intermediate_size": 2 * hidden_size, "context_length": context_length, "seed": seed}
    policy = new_policy(parse(NewModel, {**shape, **settings}, source="new-model"), byte_tokenizer())
    save_checkpoint(directory, policy)
    kind = f"{architecture} with {policy.num_parameters:,} random parameters"
    console.print(f"{directory}: {kind} and a byte tokenizer")


def main() -> None:
    """Entry point: a mistake a user can mend is one sentence on stderr and exit code 2; a warning is one sentence."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"  # also those of libraries
    try:
        app()
    except GroupwiseError as error:
        if "WORLD_SIZE" not in os.environ or _is_first_to_say(str(error)):
            print(f"groupwise: {error}", file=sys.stderr)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name not in POSIX_ONLY:
            raise
        print(f"groupwise: {sys.platform} lacks {error.name!r}; on Windows use WSL2, which is a Linux", file=sys.stderr)
        sys.exit(2)


POSIX_ONLY = ("fcntl", "resource")
"""Modules of Python that only Linux and macOS have: locks of run directories and limits of workers are theirs."""


def _is_first_to_say(sentence: str) -> bool:
    from groupwise.ranks.group import RANKS

    return RANKS.is_first_to_say(sentence)
