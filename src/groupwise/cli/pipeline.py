"""`groupwise pipeline`: what will run and why, every stage with its own display, the table of stages at the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from groupwise.cli.train import train_with_display
from groupwise.explorer.export import write_report
from groupwise.explorer.seeds import write_seeds_report
from groupwise.models.loading import quiet_transformers
from groupwise.pipeline import Action, AnyStage, Display, PipelineRecipe, Planned, load_pipeline, plan, run_pipeline
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.seeds import check_jobs, run_seeds
from groupwise.runs.run import Run
from groupwise.trainers import Recipe

STYLES = {Action.RUN: "bold", Action.RESUME: "bold", Action.MEASURE: "bold", Action.SKIP: "dim", Action.LEAVE: "dim"}
VERBS = {
    Action.RUN: "runs", Action.RESUME: "resumes", Action.MEASURE: "is measured", Action.SKIP: "skipped",
    Action.LEAVE: "left alone",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """What the command line asks for."""

    file: Path
    overrides: tuple[str, ...]
    only: str | None
    start: str | None
    dry_run: bool
    seeds: int
    jobs: int


def run(request: PipelineRequest, console: Console) -> None:
    """Run a pipeline with one seed or several, or say what would run."""
    check_jobs(request.seeds, request.jobs)
    quiet_transformers()
    recipe, stages = load_pipeline(request.file, request.overrides)
    if request.seeds == 1:
        _run_one(recipe, stages, request, console)
        return

    def run_seed(seed: int, seed_recipe: PipelineRecipe, stages: Sequence[AnyStage]) -> bool:
        console.print(f"seed {seed}: {seed_recipe.pipeline.directory}", style="bold")
        return _run_one(seed_recipe, stages, request, console)

    def on_line(name: str, line: str) -> None:
        console.print(f"{name} │ {line}", highlight=False, markup=False, soft_wrap=True)

    jobs = 1 if request.dry_run else request.jobs
    finished = run_seeds(
        request.file, request.overrides, seeds=request.seeds, jobs=jobs,
        only=request.only, start=request.start, run_seed=run_seed, on_line=on_line,
    )  # fmt: skip
    if not finished and jobs > 1:
        _say_stopped(request, console)
    if finished and not request.dry_run:
        page = write_seeds_report(Path(recipe.pipeline.directory), request.seeds)
        console.print(Markdown(page.read_text(encoding="utf-8")))
        console.print(f"Written to {page}", soft_wrap=True)


def _run_one(recipe: PipelineRecipe, stages: Sequence[AnyStage], request: PipelineRequest, console: Console) -> bool:
    """Run a pipeline and write its report, or say what would run; returns whether it came to its end."""
    if request.dry_run:
        console.print(_plan_table(plan(recipe, stages, request.only, request.start)))
        return True
    with _progress(console) as progress:
        show = _Display(console, progress)
        display = Display(show.train, show.stage, show.progress, show.finished)
        finished = run_pipeline(recipe, stages, display, request.only, request.start)
    page = write_report(recipe.pipeline.directory)
    if not finished:
        _say_stopped(request, console)
    console.print(f"Report: {page} and {page.with_suffix('.md')}", soft_wrap=True)
    return finished


def _say_stopped(request: PipelineRequest, console: Console) -> None:
    command = "the same command without --from" if request.start else "the same command"
    console.print(f"Stopped; {command} resumes there.")


def _plan_table(entries: Sequence[Planned]) -> Table:
    table = Table(title="what would run, and why", title_justify="left")
    for name in ("stage", "does", "makes", "from", "", "because"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        stage = entry.stage
        table.add_row(
            stage.name, stage.algorithm or stage.kind, stage.makes.replace("_", " "), ", ".join(entry.inputs) or "-",
            VERBS[entry.action], entry.why, style=STYLES[entry.action],
        )  # fmt: skip
    return table


@dataclass(slots=True)
class _Display:
    """Prints lines and drives one bar for the long work in hand."""

    console: Console
    bars: Progress
    _tasks: dict[str, TaskID] = field(default_factory=dict)

    def stage(self, entry: Planned, number: int, total: int) -> None:
        """The heading of a stage."""
        stage, verb = entry.stage, VERBS[entry.action]
        kind = stage.algorithm or stage.kind.replace("_", " ")
        line = f"[{number}/{total}] {stage.name} ({kind}) {verb}: {entry.why}"
        self.console.print(line, style=STYLES[entry.action], highlight=False, markup=False, soft_wrap=True)

    def train(self, recipe: Recipe) -> Run:
        """Run a trainer's recipe."""
        bar = self.bars.add_task(recipe.algorithm, total=recipe.run.num_steps)
        try:
            return train_with_display(recipe, False, self.console, self.bars, bar)
        finally:
            self.bars.remove_task(bar)

    def progress(self, label: str, done: int, total: int) -> None:
        """How far a piece of work is."""
        if label not in self._tasks:
            self._tasks[label] = self.bars.add_task(label, total=total)
        self.bars.update(self._tasks[label], completed=done)
        if done == total:
            self.bars.remove_task(self._tasks.pop(label))

    def finished(self, name: str, stage_dir: StageDirectory) -> None:
        """What a stage made, in a line or two."""
        facts, cost = stage_dir.facts or {}, stage_dir.cost
        seconds = cost.get("seconds", 0.0) + cost.get("evaluation_seconds", 0.0)
        for task, metrics in (facts.get("evaluation") or {}).items():
            texts = [f"{key} {metrics[key][0]:.3f}" for key in METRICS if key in metrics]
            self.console.print(f"      {task}: {'  '.join(texts)}", style="green", highlight=False, soft_wrap=True)
        if facts.get("statistics", {}).get("rows") is not None:
            self.console.print(f"      {facts['statistics']['rows']} rows", style="green", highlight=False)
        self.console.print(f"      {name}: {seconds:.0f} s", style="dim", highlight=False)


METRICS = ("pass_at_1", "format", "language", "mixed", "checks", "length", "calls", "helpful", "harmless")
"""Metrics of the line that follows a stage; the report has all."""


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
