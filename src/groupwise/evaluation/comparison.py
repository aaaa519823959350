"""Variants of a recipe against each other: the same seeds for all, intervals over seeds, no winner without evidence.

`groupwise compare` is `compare_variants` with a bar and a table.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise.config import Changes, Section, Source, load, named, recipe_file
from groupwise.errors import DataError, GroupwiseError
from groupwise.evaluation.run_data import RunData, load_run
from groupwise.trainers import load_recipe


class Variant(Section):
    """One contender: what it changes."""

    recipe: str = ""
    """Its recipe file, relative to the comparison's; empty: the comparison's own `recipe`."""
    extends: tuple[str, ...] = ()
    """Recipes that are put over it, beside the comparison's file or shipped, for example `algorithms/dapo.toml`."""
    overrides: tuple[str, ...] = ()
    """Dotted changes on top, for example `grpo.group_size=8`."""


class Comparison(Section):
    """What is compared with what."""

    directory: str
    """Where the runs are kept, one directory per variant and seed; finished ones are not run again."""
    recipe: str
    """The recipe that all variants start from, relative to this file."""
    seeds: int = Field(5, ge=1)
    """Runs of each variant: seeds 0, 1, ... The same seed gives the same problems and draws to all."""
    jobs: int = Field(1, ge=1)
    """Runs at one time."""
    overrides: tuple[str, ...] = ()
    """Changes for all variants, for example the token budget."""
    variants: dict[str, Variant] = Field(min_length=1)
    """The contenders by name; the first is what the others are compared with."""


class Run(NamedTuple):
    """One run of a variant."""

    pass_at_1: float
    """Held-out, on the test split, of the checkpoint that was best on dev."""
    tokens: int
    """Completion tokens sampled in training."""
    seconds: float
    """Wall-clock time of the training steps."""
    processor_seconds: float
    """Processor time of the training steps, all threads."""
    peak_memory_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """A variant over its seeds; 95 % intervals."""

    name: str
    pass_at_1: Estimate
    difference: Estimate | None
    """To the first variant, paired by seed; None for the first itself."""
    tokens: float
    seconds: Estimate
    processor_seconds: Estimate
    peak_memory_mb: float
    num_seeds: int

    @property
    def verdict(self) -> str:
        """`better` or `worse` only where the paired interval excludes zero."""
        if self.difference is None:
            return "reference"
        if self.difference.low > 0:
            return "better"
        return "worse" if self.difference.high < 0 else "no difference shown"


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """What a comparison found."""

    rows: tuple[Row, ...]
    """The variants in the order of the comparison; the first is what the others are compared with."""
    directory: Path
    """Where the runs are kept, with comparison.md and comparison.json."""

    def as_markdown(self) -> str:
        """The table, as comparison.md has it."""
        return as_markdown(self.rows)

    def as_dict(self) -> list[dict[str, Any]]:
        """For machines, as comparison.json has it."""
        return as_dict(self.rows)


class _Job(NamedTuple):
    """One run to do."""

    variant: str
    recipe: Path
    over: tuple[str, ...]
    """Recipes that are put over it."""
    overrides: tuple[str, ...]
    directory: Path


def compare_variants(
    source: Source, changes: Changes = (), on_run: Callable[[int, int], None] = lambda done, total: None
) -> ComparisonTable:
    """Run every variant with every seed, each in a process of its own, and set them side by side.

    Finished runs are kept, so an interrupted comparison resumes. It writes comparison.md and comparison.json.

    Args:
        source: a TOML file of a `Comparison`, or its tables. Recipes in it stand relative to the file, else to the
            current directory.
        changes: of the comparison's own keys, for example `{"seeds": 2}`.
        on_run: told (runs done, runs in all) before the first and after each.

    Raises:
        ConfigError: the comparison, or a variant's recipe, cannot be used; said before anything runs.
        GroupwiseError: a run failed; says which, and its last words.
    """
    comparison, folder = load(Comparison, source, changes), named(source)[1]
    jobs = [job for seed in range(comparison.seeds) for job in _jobs(folder, comparison, seed)]
    for job in jobs:  # a mistake in the last variant answers before the first is run
        load_recipe(job.recipe, job.overrides, job.over)
    _run_all(jobs, comparison.jobs, on_run)
    found: dict[str, list[Run]] = {name: [] for name in comparison.variants}
    for job in jobs:
        found[job.variant].append(read_run(job.directory))
    table = ComparisonTable(tuple(rows(found)), Path(comparison.directory))
    (table.directory / "comparison.md").write_text(table.as_markdown(), encoding="utf-8")
    (table.directory / "comparison.json").write_text(json.dumps(table.as_dict(), indent=1), encoding="utf-8")
    return table


def _jobs(folder: Path, comparison: Comparison, seed: int) -> list[_Job]:
    jobs = []
    for name, variant in comparison.variants.items():
        directory = Path(comparison.directory) / f"{name}-seed{seed}"
        own = (f"run.directory={json.dumps(str(directory))}", f"run.seed={seed}")
        recipe = folder / (variant.recipe or comparison.recipe)
        over = tuple(str(recipe_file(one, folder)) for one in variant.extends)
        jobs.append(_Job(name, recipe, over, (*comparison.overrides, *variant.overrides, *own), directory))
    return jobs


def _run_all(jobs: Sequence[_Job], at_once: int, on_run: Callable[[int, int], None]) -> None:
    on_run(0, len(jobs))
    done: list[_Job] = []

    def run(job: _Job) -> None:
        if not (job.directory / "finished.json").exists():
            _train(job, at_once)
        done.append(job)
        on_run(len(done), len(jobs))

    with ThreadPoolExecutor(at_once) as pool:
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


def share_of_threads(at_once: int) -> dict[str, str]:
    """The environment in which each of `at_once` processes computes with its share of the CPU threads."""
    return {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once))}


def read_run(path: Path) -> Run:
    """What a finished run says of itself.

    Raises:
        DataError: it has no test evaluation.
    """
    run = load_run(path)
    if run.test_after is None:
        raise DataError(f"{path} has no test evaluation: set evaluation.test_problems above 0 to compare")
    return Run(
        pass_at_1=float(run.test_after.line["pass_at_1"][0]),
        tokens=sum(int(step["sampled_tokens"]) for step in run.steps),
        seconds=sum(float(step[part]) for step in run.steps for part in ("generate_s", "verify_s", "train_s")),
        processor_seconds=sum(float(step["processor_s"]) for step in run.steps),
        peak_memory_mb=_peak(run),
    )


def _peak(run: RunData) -> float:
    return max(float(step["peak_memory_mb"]) for step in run.steps)


def rows(runs: Mapping[str, Sequence[Run]]) -> list[Row]:
    """Summarise each variant's runs (in the order of seeds) against the first variant's."""
    reference = next(iter(runs.values()))
    return [_row(name, found, None if found is reference else reference) for name, found in runs.items()]


def _row(name: str, found: Sequence[Run], reference: Sequence[Run] | None) -> Row:
    difference = None
    if reference is not None:
        pairs = zip(reference, found, strict=True)
        difference = mean_over_seeds([after.pass_at_1 - before.pass_at_1 for before, after in pairs])
    return Row(
        name=name,
        pass_at_1=mean_over_seeds([run.pass_at_1 for run in found]),
        difference=difference,
        tokens=sum(run.tokens for run in found) / len(found),
        seconds=mean_over_seeds([run.seconds for run in found]),
        processor_seconds=mean_over_seeds([run.processor_seconds for run in found]),
        peak_memory_mb=max(run.peak_memory_mb for run in found),
        num_seeds=len(found),
    )


def as_markdown(table: Sequence[Row]) -> str:
    """The comparison as a table."""
    lines = [
        "| Variant | pass@1 | difference | verdict | tokens | training, s | processor, s | peak memory, MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in table:
        difference = _signed(row.difference) if row.difference else ""
        lines.append(
            f"| {row.name} | {row.pass_at_1} | {difference} | {row.verdict} | {row.tokens:,.0f} | "
            f"{_seconds(row.seconds)} | {_seconds(row.processor_seconds)} | {row.peak_memory_mb:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def _seconds(estimate: Estimate) -> str:
    return f"{estimate.value:.0f} [{estimate.low:.0f}, {estimate.high:.0f}]"


def _signed(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def as_dict(table: Sequence[Row]) -> list[dict[str, Any]]:
    """The comparison for machines."""
    return [
        {
            "variant": row.name,
            "pass_at_1": row.pass_at_1._asdict(),
            "difference": row.difference._asdict() if row.difference else None,
            "verdict": row.verdict,
            "tokens": row.tokens,
            "seconds": row.seconds._asdict(),
            "processor_seconds": row.processor_seconds._asdict(),
            "peak_memory_mb": row.peak_memory_mb,
            "seeds": row.num_seeds,
        }
        for row in table
    ]
