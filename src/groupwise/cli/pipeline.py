"""`groupwise pipeline`: every stage with its own display and the table of stages at the end; or a recall alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markdown import Markdown

from groupwise.cli.app import Overrides, app, console, refuse, table_of
from groupwise.runs.progress import say

if TYPE_CHECKING:
    from groupwise.pipeline import AnyStage, PipelineRecipe, Planned
    from groupwise.pipeline.directory import StageDirectory
    from groupwise.runs.run import Run
    from groupwise.trainers import Recipe

SOURCES = "sources"
"""The table that makes a recipe one of recall."""
VERBS = {
    "run": ("runs", "bold"), "resume": ("resumes", "bold"), "measure": ("is measured", "bold"),
    "skip": ("skipped", "dim"), "leave": ("left alone", "dim"),
}  # fmt: skip
"""By action: what the terminal calls it, and its style."""
METRICS = ("pass_at_1", "format", "language", "mixed", "checks", "length", "calls", "helpful", "harmless")
"""Metrics of the line that follows a stage; the report has all."""


@app.command()
def pipeline(
    recipe: Annotated[
        Path, typer.Argument(help="A TOML recipe with [stages], or the pipeline.toml of an earlier run.")],
    overrides: Overrides = None,
    only: Annotated[str | None, typer.Option(metavar="STAGE", help="Run nothing but this stage.")] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="STAGE",
        help="Run this stage, and what depends on it, again, finished or not.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and why; run nothing.")] = False,
    seeds: Annotated[
        int, typer.Option(min=1, help="Run it with seeds 0, 1, ..., each in its own directory, and compare them.")] = 1,
    jobs: Annotated[int, typer.Option(
        min=1, help="Seeds that run at the same time, each in its own process with its share of the processor.")] = 1,
    restart: Annotated[bool, typer.Option("--restart", help="Of a recall: delete what an earlier call left.")] = False,
) -> None:  # fmt: skip
    """Run the stages of a pipeline: DeepSeek-R1's, RLHF's, or your own.

    A finished stage with the same settings, inputs and code is skipped; a changed one runs again, and so does what
    depends on it. If it is killed, the same command resumes inside the stage it was in.

    A recipe with [sources] is a recall: it collects a corpus of mathematics from pages, in rounds, and writes a report
    (DeepSeekMath's way). Where people annotate, it stops and names the file to fill in.

    Examples:

        groupwise pipeline recipes/r1.toml

        groupwise pipeline recipes/r1.toml --dry-run

        groupwise pipeline recipes/r1.toml --seeds 4 --jobs 2 --set pipeline.directory=runs/r1-seeds

        groupwise pipeline recipes/r1.toml --from sft

        groupwise pipeline recipes/recall.toml --set annotator.kind=file --set annotator.path=patterns.toml
    """
    from groupwise.config import named, read_toml
    from groupwise.errors import ConfigError

    changes = overrides or []
    tables = read_toml(Path(named(recipe)[0]))  # a missing or malformed file is reported before torch is loaded
    if tables.keys() & {"algorithm", "variants"}:
        raise ConfigError(f"{recipe} is no pipeline: `groupwise train {recipe}` runs it")
    if SOURCES in tables:
        refuse("on a recipe of recall", only=only, **{"from": start}, dry_run=dry_run, seeds=seeds > 1, jobs=jobs > 1)
        recall(recipe, changes, restart)
        return
    if restart:
        raise ConfigError("--restart is for a recipe of recall; a pipeline runs again from a stage with --from STAGE")
    from groupwise.explorer.seeds import write_seeds_report
    from groupwise.models.loading import quiet_transformers
    from groupwise.pipeline import check_jobs, load_pipeline, run_seeds

    check_jobs(seeds, jobs)
    quiet_transformers()
    first, stages = load_pipeline(recipe, changes)
    if seeds == 1:
        run_one(first, stages, only, start, dry_run)
        return

    def run_seed(seed: int, seed_recipe: "PipelineRecipe", stages: "Sequence[AnyStage]") -> bool:
        console.print(f"seed {seed}: {seed_recipe.pipeline.directory}", style="bold")
        return run_one(seed_recipe, stages, only, start, dry_run)

    def on_line(name: str, line: str) -> None:
        console.print(f"{name} │ {line}", highlight=False, markup=False, soft_wrap=True)

    jobs = 1 if dry_run else jobs
    finished = run_seeds(
        recipe, changes, seeds=seeds, jobs=jobs, only=only, start=start, run_seed=run_seed, on_line=on_line
    )
    if not finished and jobs > 1:
        _print_stopped(start)
    if finished and not dry_run:
        page = write_seeds_report(Path(first.pipeline.directory), seeds)
        console.print(Markdown(page.read_text(encoding="utf-8")))
        console.print(f"Written to {page}", soft_wrap=True)


def run_one(
    recipe: "PipelineRecipe", stages: "Sequence[AnyStage]", only: str | None, start: str | None, dry_run: bool
) -> bool:
    """Run a pipeline and write its report, or print what would run; return whether it came to its end."""
    from groupwise.explorer.export import write_report
    from groupwise.pipeline import Display, plan, run_pipeline

    if dry_run:
        table = table_of("stage", "does", "makes", "from", "", "because", title="what would run, and why")
        for entry in plan(recipe, stages, only, start):
            stage, (verb, style) = entry.stage, VERBS[entry.action]
            does, makes = stage.algorithm or stage.kind, stage.makes.replace("_", " ")
            table.add_row(stage.name, does, makes, ", ".join(entry.inputs) or "-", verb, entry.why, style=style)
        console.print(table)
        return True
    finished = run_pipeline(recipe, stages, Display(train_stage, show_stage, show_finished), only, start)
    page = write_report(recipe.pipeline.directory)
    if not finished:
        _print_stopped(start)
    console.print(f"Report: {page} and {page.with_suffix('.md')}", soft_wrap=True)
    return finished


def _print_stopped(start: str | None) -> None:
    command = "the same command without --from" if start else "the same command"
    console.print(f"Stopped; {command} resumes there.")


def show_stage(entry: "Planned", number: int, total: int) -> None:
    """Print what becomes of a stage, and why."""
    stage, (verb, style) = entry.stage, VERBS[entry.action]
    kind = stage.algorithm or stage.kind.replace("_", " ")
    line = f"[{number}/{total}] {stage.name} ({kind}) {verb}: {entry.why}"
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def train_stage(recipe: "Recipe") -> "Run":
    """Train with the lines of `groupwise train`."""
    from groupwise.cli.train import show_reports
    from groupwise.trainers import train

    return train(recipe, False, show_reports(recipe))


def show_finished(name: str, stage_dir: "StageDirectory") -> None:
    """Print what a stage gained, and its time."""
    facts, cost = stage_dir.facts or {}, stage_dir.cost
    seconds = cost.get("seconds", 0.0) + cost.get("evaluation_seconds", 0.0)
    for task, metrics in (facts.get("evaluation") or {}).items():
        unjudged = {"pass_at_1"} if metrics.get("kind") == "open_ended" else set()  # no rule says what is right
        texts = [f"{key} {metrics[key][0]:.3f}" for key in METRICS if key in metrics.keys() - unjudged]
        console.print(f"      {task}: {'  '.join(texts)}", style="green", highlight=False, soft_wrap=True)
    if facts.get("statistics", {}).get("rows") is not None:
        console.print(f"      {facts['statistics']['rows']} rows", style="green", highlight=False)
    console.print(f"      {name}: {seconds:.0f} s", style="dim", highlight=False)


def recall(file: Path, overrides: Sequence[str], restart: bool) -> None:
    """Run a recipe of recall and write its page."""
    from groupwise.config import load
    from groupwise.recall.config import RecallRecipe
    from groupwise.recall.page import write_recall_report
    from groupwise.recall.run import run_recall

    recipe = load(RecallRecipe, file, overrides)
    facts: dict[str, Any] = run_recall(recipe, say, restart)
    for number, figures in enumerate(facts["rounds"], 1):
        parts = [f"round {number}: {figures['kept']:,} pages, {100 * figures['known_share']:.1f} % of them known"]
        for name in ("precision", "recall"):
            if name in figures and figures[name][1]:
                parts.append(f"{name} {figures[name][0] / figures[name][1]:.3f}")
        patterns = f"{figures['yes']} of {figures['asked']} patterns are mathematics"
        line = ", ".join([*parts, patterns, f"{figures['grown']} pages join the seed"])
        console.print(line, highlight=False)
    corpus = facts["corpus"]
    line = f"corpus: {corpus['pages']:,} pages, {corpus['characters']:,} characters"
    console.print(line, style="green", highlight=False)
    console.print(f"Report: {write_recall_report(Path(recipe.directory))}", soft_wrap=True)
