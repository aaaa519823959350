"""`groupwise train` and `groupwise demo`: a line per step, the report at the end; or variants compared."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli import doctor
from groupwise.cli.app import Overrides, app, console, refuse
from groupwise.runs.progress import say

if TYPE_CHECKING:
    from groupwise.trainers import OnReport, Recipe
    from groupwise.trainers.report import StepReport

HEADER = " step  reward  correct  signal  entropy  length right/wrong  trunc.  errors   tokens/s  generate/verify/train"
ROWS_PER_HEADER = 20
STEPS_PER_LINE = 10
"""Steps for each line of a trainer that learns from data."""
VARIANTS = "variants"
"""The table that makes a recipe a comparison."""
QUESTION = "What is 23 × 17?"
"""Question for the trained model of the demo; the task knows its answer, 391."""


@app.command()
def demo(
    overrides: Overrides = None,
    restart: Annotated[bool, typer.Option("--restart", help="Delete an earlier run of the demo first.")] = False,
) -> None:
    """Teach the shipped base model products of two-digit numbers, measure it before and after, ask it a question.

    It trains the recipe `arithmetic` into runs/arithmetic, in a few minutes on two cores; it needs no checkout,
    no GPU and no network. The same command resumes an interrupted demo.

    Example:

        groupwise demo
    """
    from groupwise.cli.preflight import before_training
    from groupwise.cli.sample import show_answers
    from groupwise.runs.run import Run
    from groupwise.trainers import load_recipe

    recipe = load_recipe("arithmetic", overrides or [])
    before_training(recipe, anyway=False)
    run_recipe(recipe, restart)
    run = Run.open(recipe.run.directory)
    if not run.finished:
        return  # stopped by Ctrl-C, and reported
    console.print(f"\n{QUESTION}", style="bold")
    show_answers(str(run.best), QUESTION)
    place = shlex.quote(str(run.path))
    console.print(f"Next: groupwise explore {place}, groupwise doctor {place}", highlight=False)


@app.command()
def train(
    recipe: Annotated[Path,
        typer.Argument(help="A TOML recipe, the name of a shipped one, e.g. `arithmetic`, or a run's config.toml.")],
    overrides: Overrides = None,
    extend: Annotated[list[str] | None, typer.Option(metavar="RECIPE",
        help="Lay another recipe over this one, before --set: a file, or one that comes with Groupwise, e.g. "
        "`--extend algorithms/dapo.toml`. Repeatable.")] = None,
    restart: Annotated[bool, typer.Option(help="Delete the run directory first and start over.")] = False,
    ranks: Annotated[
        int, typer.Option(min=1, help="Processes that train the model together, each with a share of it.")] = 1,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Train in spite of what the checks before a run refuse.")] = False,
    accept: Annotated[list[str] | None, typer.Option("--accept-changed", metavar="NAME",
        help="Resume although this input (its key, path or file name) is not what it was when the run began; the "
        "ledger says so. Repeatable.")] = None,
) -> None:  # fmt: skip
    """Run a recipe. The same command resumes an interrupted run; Ctrl-C stops after the current step.

    The checks of `groupwise preflight` that cost nothing are done first. A recipe with [variants] is a comparison:
    every variant runs with the same seeds, and a table sets them side by side with intervals over seeds.

    Examples:

        groupwise train arithmetic

        groupwise train recipes/arithmetic.toml --set run.seed=1 --set run.directory=runs/seed1

        groupwise train recipes/arithmetic.toml --extend algorithms/dapo.toml

        groupwise train recipes/compare.toml --set seeds=2 --set directory=runs/try

        groupwise train recipes/gsm8k.toml --set model.path=Qwen/Qwen2.5-0.5B-Instruct

        groupwise train recipes/gsm8k.toml --ranks 8

        torchrun --nproc-per-node 8 -m groupwise train recipes/gsm8k.toml
    """
    from groupwise.config import named, read_toml
    from groupwise.errors import ConfigError

    tables = read_toml(Path(named(recipe)[0]))  # a missing or malformed file is reported before torch is loaded
    if tables.keys() & {"stages", "sources"}:
        raise ConfigError(f"{recipe} is a pipeline: `groupwise pipeline {recipe}` runs it")
    if VARIANTS in tables:
        refuse("on a comparison", extend=extend, restart=restart, ranks=ranks > 1, anyway=anyway, accept_changed=accept)
        compare(recipe, overrides or [])
        return
    from groupwise.cli.preflight import before_training
    from groupwise.ranks.group import rank_of_launcher
    from groupwise.trainers import load_recipe

    settings = load_recipe(recipe, overrides or [], extend or [])
    if ranks > 1:
        from groupwise.ranks import launch

        given = (("--set", overrides), ("--extend", extend), ("--accept-changed", accept))
        words = [word for option, values in given for value in values or [] for word in (option, value)]
        flags = [flag for flag, is_set in (("--restart", restart), ("--anyway", anyway)) if is_set]
        launch(ranks, ["train", str(recipe), *words, *flags])
        return
    if rank_of_launcher() == 0:
        before_training(settings, anyway)
    run_recipe(settings, restart, accept or [])


def compare(file: Path, overrides: Sequence[str]) -> None:
    """Run the variants of a comparison that are not finished, and print the table."""
    from rich.markdown import Markdown

    from groupwise.trainers.compare import compare_variants

    table = compare_variants(file, overrides, partial(say, "runs"))
    console.print(Markdown(table.as_markdown()))
    console.print(
        f"{table.rows[0].num_seeds} seeds each; 95 % intervals over seeds (Student). A variant is better or worse only "
        "where the interval of its difference, paired by seed, excludes zero. "
        f"Written to {table.directory / 'comparison.md'}"
    )


def run_recipe(recipe: "Recipe", restart: bool, accept: Sequence[str] = ()) -> None:
    """Train with a live display and say at the end where everything is."""
    from groupwise.models.loading import quiet_transformers
    from groupwise.ranks.group import rank_of_launcher
    from groupwise.trainers import train, trainer_of
    from groupwise.trainers.rl import RlTrainer

    quiet_transformers()
    if rank_of_launcher():  # the first rank alone prints
        train(recipe, restart, accept=accept)
        return
    run = train(recipe, restart, show_reports(recipe), accept)
    if not run.finished:
        console.print(f"Stopped after step {run.num_steps} with a checkpoint; the same command resumes there.")
    elif isinstance(trainer_of(recipe), RlTrainer):
        from groupwise.cli.runs import text_summary
        from groupwise.errors import GroupwiseError
        from groupwise.explorer.export import write_report
        from groupwise.runs.records import Records

        try:
            page = write_report(run.directory.path)
            console.print(text_summary(Records.open(run.directory.path).intact()), soft_wrap=True)
            console.print(f"Report: {page}")
        except GroupwiseError as error:
            console.print(f"The run is finished, but its report could not be written: {error}")
    else:
        tokens = sum(line.get("num_tokens", 0) for line in run.directory.metrics.lines())
        console.print(f"Trained on {tokens:,} tokens: {run.checkpoints[-1]}")


def show_reports(recipe: "Recipe") -> "OnReport":
    """Return a callback that prints a line for every report."""
    from groupwise.checks import Finding
    from groupwise.cli.evaluate import show_second
    from groupwise.trainers import trainer_of
    from groupwise.trainers.preferences import HeldOut
    from groupwise.trainers.process_reward_model import HeldOutSteps
    from groupwise.trainers.report import DevReport, StepReport

    num_shown = 0
    line = trainer_of(recipe).line

    def show(text: str, style: str = "") -> None:
        console.print(text, style=style, highlight=False, soft_wrap=True)

    def on_report(report: Any) -> None:
        nonlocal num_shown
        match report:
            case StepReport():
                if not num_shown and report.step:
                    console.print(f"resuming after {report.step} finished steps")
                num_shown += 1
                if report.step % ROWS_PER_HEADER == 0:
                    show(HEADER, "bold")
                show(step_line(report))
            case DevReport():
                best = "  (best so far)" if report.best else ""
                text = f"  dev  pass@1 {report.pass_at_1} after {report.step} steps{best}"
                console.print(text, style="green" if report.best else "", highlight=False)
                if report.second:
                    show_second(report.second)
            case Finding():
                console.print(doctor.line(report), soft_wrap=True)
            case HeldOut():
                show(
                    f"  held out  accuracy {report.accuracy} after {report.step} steps  margin {report.margin:.3f}  "
                    f"calibration error {report.calibration_error:.3f}  mean score {report.mean_score:.3f}", "green",
                )  # fmt: skip
            case HeldOutSteps():
                auc, f1 = ("-" if number is None else f"{number:.3f}" for number in (report.auc, report.f1))
                measured = f"loss {report.loss:.4f}, area under the curve {auc}, F1 {f1}"
                show(f"held out after {report.step} steps: {measured}", "green")
            case _:
                if report.step % STEPS_PER_LINE == 0:
                    show(line(report))

    return on_report


def step_line(report: "StepReport") -> str:
    """Return one step as an aligned line; a missing length (no such completion) is a dash."""
    right_length, wrong_length = (
        "-" if length is None else f"{length:.0f}" for length in (report.length_correct, report.length_wrong)
    )
    entropy = "-" if report.entropy is None else f"{report.entropy:.3f}"
    total = report.generate_s + report.verify_s + report.train_s
    split = "/".join(f"{100 * part / total:.0f}" for part in (report.generate_s, report.verify_s, report.train_s))
    return (
        f"{report.step:5d}  {report.reward:6.3f}  {report.correct:7.3f}  {report.signal:6.2f}  {entropy:>7}  "
        f"{right_length:>12} / {wrong_length:<3}  {report.truncated:6.1%}  {report.verdict_errors:6d}  "
        f"{report.tokens_per_second:9,.0f}  {split:>13} % of {total:.2f} s{extras(report)}"
    )


BUSY = 0.5
"""Cores in use by other programs from which on a step's line mentions them."""


def extras(report: "StepReport") -> str:
    """Return what only some steps have: other reward parts, refills, a critic, importance weights, a busy machine."""
    names = {key.split("/")[1] for key in report.parts if key.startswith("part/")} - {"accuracy"}
    notes = [f"{name} {report.parts[f'part/{name}/mean']:+.3f}" for name in sorted(names)]
    notes = [note for note in notes if not note.endswith(("+0.000", "-0.000"))]
    cuts = {name: report.parts.get(f"measure/cut/{name}/mean", 0) for name in sorted(names)}
    notes += [f"{share:.0%} of {name} beyond its clip" for name, share in cuts.items() if share]
    notes += [f"{n:.0f} {name}" for name, n in report.parts.items() if name.startswith("disagreement/") and n]
    if report.no_verdict:
        notes.append(f"{report.no_verdict} without a verdict")
    if report.refilled_groups:
        notes.append(f"{report.refilled_groups} refilled (of all drawn {report.sampled_correct:.3f} correct)")
    if report.explained_variance is not None:
        notes.append(f"critic explains {report.explained_variance:.2f}")
    if report.weights_bounded or report.age:
        notes.append(f"{report.weights_bounded:.1%} weights bounded, {report.effective_samples:.0%} effective")
    if report.age:
        notes.append(f"{report.age:.3g} update{'' if report.age == 1 else 's'} old")
    if report.busy_cores >= BUSY:
        notes.append(f"other programs took {report.busy_cores:.1f} cores")
    return "".join(f"  {note}" for note in notes)
