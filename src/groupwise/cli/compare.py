"""`groupwise compare`: run every variant with every seed, each in a process of its own, and set them side by side."""

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from groupwise.cli.seeds import share_of_threads
from groupwise.config import load, recipe_file
from groupwise.errors import GroupwiseError
from groupwise.evaluation.comparison import Comparison, Run, as_dict, as_markdown, read_run, rows
from groupwise.trainers import load_recipe


class _Job(NamedTuple):
    """One run to do."""

    variant: str
    recipe: Path
    over: tuple[str, ...]
    """Recipes that are put over it."""
    overrides: tuple[str, ...]
    directory: Path


def run_comparison(file: Path, overrides: Sequence[str], console: Console, as_json: bool) -> None:
    """Do what is left to do, write comparison.md and comparison.json, and print the table."""
    comparison = load(Comparison, file, overrides)
    jobs = [job for seed in range(comparison.seeds) for job in _jobs(file, comparison, seed)]
    for job in jobs:
        load_recipe(
            job.recipe, job.overrides, job.over
        )  # a mistake in the last variant answers before the first is run
    _run_all(jobs, comparison.jobs, console, quiet=as_json)
    found: dict[str, list[Run]] = {name: [] for name in comparison.variants}
    for job in jobs:
        found[job.variant].append(read_run(job.directory))
    table = rows(found)
    directory = Path(comparison.directory)
    (directory / "comparison.md").write_text(as_markdown(table), encoding="utf-8")
    (directory / "comparison.json").write_text(json.dumps(as_dict(table), indent=1), encoding="utf-8")
    if as_json:
        print(json.dumps(as_dict(table), indent=1))
        return
    console.print(Markdown(as_markdown(table)))
    console.print(
        f"{comparison.seeds} seeds each; 95 % intervals over seeds (Student). 'better' and 'worse' are said only where "
        f"the difference paired by seed excludes zero. Written to {directory / 'comparison.md'}"
    )


def _jobs(file: Path, comparison: Comparison, seed: int) -> list[_Job]:
    jobs = []
    for name, variant in comparison.variants.items():
        directory = Path(comparison.directory) / f"{name}-seed{seed}"
        own = (f"run.directory={json.dumps(str(directory))}", f"run.seed={seed}")
        recipe = file.parent / (variant.recipe or comparison.recipe)
        over = tuple(str(recipe_file(one, file.parent)) for one in variant.extends)
        jobs.append(_Job(name, recipe, over, (*comparison.overrides, *variant.overrides, *own), directory))
    return jobs


def _run_all(jobs: Sequence[_Job], at_once: int, console: Console, quiet: bool) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(
            *columns, TimeRemainingColumn(), console=console, disable=quiet or not console.is_terminal
        ) as progress,
        ThreadPoolExecutor(at_once) as pool,
    ):
        bar = progress.add_task("runs", total=len(jobs))

        def run(job: _Job) -> None:
            if not (job.directory / "finished.json").exists():
                _train(job, at_once)
            progress.advance(bar)

        try:
            list(pool.map(run, jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _train(job: _Job, at_once: int) -> None:
    """One training in a process of its own, so that its memory can be measured; its output is kept beside its files."""
    command = [sys.executable, "-m", "groupwise", "train", str(job.recipe)]
    command += [word for name in job.over for word in ("--extend", name)]
    command += [word for override in job.overrides for word in ("--set", override)]
    done = subprocess.run(command, capture_output=True, text=True, env=share_of_threads(at_once), check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise GroupwiseError(f"{job.directory} failed: {said[-1] if said else 'no output'}")
