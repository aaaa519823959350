"""`groupwise train`: a line per step, dev results between them, a progress bar below, the report at the end."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from groupwise.checks.doctor.finding import Finding
from groupwise.cli import doctor
from groupwise.cli.second import show_second
from groupwise.cli.summary import text_summary
from groupwise.errors import GroupwiseError
from groupwise.evaluation.run_data import load_run
from groupwise.explorer.export import write_report
from groupwise.models.loading import quiet_transformers
from groupwise.ranks.group import rank_of_launcher
from groupwise.runs.directory import RunDirectory
from groupwise.runs.lock import Neighbours, announced
from groupwise.runs.run import Run
from groupwise.trainers import OnReport, Recipe, train, trainer_of
from groupwise.trainers.preferences import HeldOut
from groupwise.trainers.process_reward_model import HeldOutSteps
from groupwise.trainers.report import DevReport, StepReport
from groupwise.trainers.rl import RlTrainer

HEADER = " step  reward  correct  signal  entropy  length right/wrong  trunc.  errors   tokens/s  generate/verify/train"
ROWS_PER_HEADER = 20
STEPS_PER_LINE = 10
"""Steps for each line of a trainer that learns from data."""


def run_recipe(recipe: Recipe, restart: bool, console: Console) -> None:
    """Train with a live display and say at the end where everything is."""
    quiet_transformers()
    if rank_of_launcher():  # the first rank alone tells
        train(recipe, restart)
        return
    with _progress(console) as progress:
        bar = progress.add_task("training", total=recipe.run.num_steps)
        run = train_with_display(recipe, restart, console, progress, bar)
    if not run.finished:
        console.print(f"Stopped after step {run.num_steps} with a checkpoint; the same command resumes there.")
    elif isinstance(trainer_of(recipe), RlTrainer):
        show_report(run.directory, console)
    else:
        tokens = sum(line.get("num_tokens", 0) for line in run.directory.metrics.lines())
        console.print(f"Trained on {tokens:,} tokens: {run.checkpoints[-1]}")


def train_with_display(recipe: Recipe, restart: bool, console: Console, progress: Progress, bar: TaskID) -> Run:
    """Run a recipe, or resume an interrupted run, with a line for every report and for every run beside it."""
    show = show_reports(recipe, console, progress, bar)
    with announced(Path(recipe.run.directory)) as neighbours:
        say_neighbours(neighbours, console)

        def on_report(report: Any) -> None:
            say_neighbours(neighbours, console)
            show(report)

        return train(recipe, restart, on_report)


def say_neighbours(neighbours: Neighbours, console: Console) -> None:
    """Name the other runs that began since the last call."""
    for neighbour in neighbours.news():
        line = f"another run is active on this machine, and each slows the other down: {neighbour}"
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)


def show_reports(recipe: Recipe, console: Console, progress: Progress, bar: TaskID) -> OnReport:
    """A callback that prints a line for every report and moves the bar."""
    steps: list[int] = []
    line = trainer_of(recipe).line

    def rl_step(report: StepReport) -> None:
        if not steps and report.step:
            console.print(f"resuming after {report.step} finished steps")
        steps.append(report.step)
        if report.step % ROWS_PER_HEADER == 0:
            console.print(HEADER, style="bold", highlight=False, soft_wrap=True)
        console.print(step_line(report), highlight=False, soft_wrap=True)
        progress.update(bar, completed=report.step + 1)

    def dev(report: DevReport) -> None:
        console.print(dev_line(report), style="green" if report.best else "", highlight=False)
        if report.second:
            show_second(report.second, console)

    def on_report(report: Any) -> None:
        match report:
            case StepReport():
                rl_step(report)
            case DevReport():
                dev(report)
            case Finding():
                console.print(doctor.line(report), soft_wrap=True)
            case HeldOut():
                console.print(held_out_line(report), style="green", highlight=False, soft_wrap=True)
            case HeldOutSteps():
                console.print(held_out_steps_line(report), style="green", highlight=False, soft_wrap=True)
            case _:
                progress.update(bar, completed=report.step + 1)
                if report.step % STEPS_PER_LINE == 0:
                    console.print(line(report), highlight=False, soft_wrap=True)

    return on_report


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
    )
    return Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)


def step_line(report: StepReport) -> str:
    """One step as an aligned line; a missing length (no such completion) is a dash."""
    right_length, wrong_length = (
        "-" if length is None else f"{length:.0f}" for length in (report.length_correct, report.length_wrong)
    )
    entropy = "-" if report.entropy is None else f"{report.entropy:.3f}"
    total = report.generate_s + report.verify_s + report.train_s
    split = "/".join(f"{100 * part / total:.0f}" for part in (report.generate_s, report.verify_s, report.train_s))
    return (
        f"{report.step:5d}  {report.reward:6.3f}  {report.correct:7.3f}  {report.signal:6.2f}  {entropy:>7}  "
        f"{right_length:>12} / {wrong_length:<3}  {report.truncated:6.1%}  {report.verdict_errors:6d}  "
        f"{report.tokens_per_second:9,.0f}  {split:>13} % of {total:.2f} s{_extras(report)}"
    )


BUSY = 0.5
"""Cores in use by other programs from which on a step's line says so: its time is then not the machine's."""


def _extras(report: StepReport) -> str:
    """What only some steps have: other reward parts, refills, a critic, importance weights, a busy machine."""
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


def held_out_steps_line(report: HeldOutSteps) -> str:
    """What was measured on held-out labelled steps, in a line; a dash where there was nothing to measure."""
    auc, f1 = ("-" if number is None else f"{number:.3f}" for number in (report.auc, report.f1))
    return f"held out after {report.step} steps: loss {report.loss:.4f}, area under the curve {auc}, F1 {f1}"


def held_out_line(report: HeldOut) -> str:
    """What was measured on held-out pairs as a line."""
    return (
        f"  held out  accuracy {report.accuracy} after {report.step} steps  margin {report.margin:.3f}  "
        f"calibration error {report.calibration_error:.3f}  mean score {report.mean_score:.3f}"
    )


def dev_line(report: DevReport) -> str:
    """A dev evaluation as a line."""
    return f"  dev  pass@1 {report.pass_at_1} after {report.step} steps{'  (best so far)' if report.best else ''}"


def show_report(directory: RunDirectory, console: Console) -> None:
    """Write the run's page and print its summary; a failing page must not hide a finished training."""
    try:
        page = write_report(directory.path)
        console.print(text_summary(load_run(directory.path)), soft_wrap=True)
        console.print(f"Report: {page}")
    except GroupwiseError as error:
        console.print(f"The run is finished, but its report could not be written: {error}")
