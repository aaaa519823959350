"""Runs the variants of a comparison and sets them side by side. `groupwise train` adds a bar."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise.config import Changes, Section, Source, as_overrides, dump_toml, load, named, recipe_file
from groupwise.config.schema import PlaceRef
from groupwise.errors import CheckpointError, DataError, GroupwiseError
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory, differences
from groupwise.runs.inputs import compare, recorded, references
from groupwise.runs.ledger import or_null
from groupwise.runs.processes import Children, many
from groupwise.runs.records import Records
from groupwise.trainers import Recipe, load_recipe
from groupwise.trainers.base import dated, with_chat, with_precision
from groupwise.training.session import resolved


class Variant(Section):
    """A variant: changes of the comparison's recipe."""

    recipe: str = ""
    """Recipe file, relative to the comparison's; empty: the comparison's `recipe`."""
    extends: tuple[str, ...] = ()
    """Recipes that change it, beside the comparison's file or shipped, for example `algorithms/dapo.toml`."""
    overrides: tuple[str, ...] = ()
    """Dotted changes on top, for example `grpo.group_size=8`."""


class Comparison(Section):
    """Variants of a recipe."""

    directory: PlaceRef
    """Directory of the runs, one directory per variant and seed; finished ones are not run again."""
    recipe: str
    """The recipe that all variants start from, relative to this file."""
    seeds: int = Field(5, ge=1)
    """Runs of each variant: seeds 0, 1, ... The same seed gives the same problems and draws to all."""
    jobs: int = Field(1, ge=1)
    """Runs at one time."""
    overrides: tuple[str, ...] = ()
    """Changes for all variants, for example the token budget."""
    variants: dict[str, Variant] = Field(min_length=1)
    """The variants by name; the others are compared with the first."""


class VariantRun(NamedTuple):
    """One run of a variant."""

    pass_at_1: float
    tokens: int
    seconds: float
    processor_seconds: float
    peak_memory_mb: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A variant over its seeds; 95 % intervals."""

    name: str
    pass_at_1: Estimate
    difference: Estimate | None
    tokens: float
    seconds: Estimate
    processor_seconds: Estimate
    peak_memory_mb: float
    num_seeds: int

    @property
    def verdict(self) -> str:
        if self.difference is None:
            return "reference"
        if self.difference.low > 0:
            return "better"
        return "worse" if self.difference.high < 0 else "no difference shown"


def summarised(runs: Mapping[str, Sequence[VariantRun]]) -> list[Compared]:
    """Summarise each variant's runs (in the order of seeds) against the first variant's."""
    reference = next(iter(runs.values()))
    table = []
    for name, variant_runs in runs.items():
        pairs = zip(reference, variant_runs, strict=True)
        differences = [after.pass_at_1 - before.pass_at_1 for before, after in pairs]
        table.append(
            Compared(
                name=name, pass_at_1=mean_over_seeds([run.pass_at_1 for run in variant_runs]),
                difference=None if variant_runs is reference else mean_over_seeds(differences),
                tokens=sum(run.tokens for run in variant_runs) / len(variant_runs),
                seconds=mean_over_seeds([run.seconds for run in variant_runs]),
                processor_seconds=mean_over_seeds([run.processor_seconds for run in variant_runs]),
                peak_memory_mb=max(run.peak_memory_mb for run in variant_runs), num_seeds=len(variant_runs),
            )
        )  # fmt: skip
    return table


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Result of a comparison."""

    rows: tuple[Compared, ...]
    directory: Path

    def as_markdown(self) -> str:
        lines = [
            "| Variant | pass@1 | difference | verdict | tokens | training, s | processor, s | peak memory, MiB |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            gain, (wall, processor) = row.difference, (row.seconds, row.processor_seconds)
            lines.append(
                f"| {row.name} | {row.pass_at_1} | {gain.signed if gain else ''} | {row.verdict} | {row.tokens:,.0f} | "
                f"{wall.value:.0f} [{wall.low:.0f}, {wall.high:.0f}] | "
                f"{processor.value:.0f} [{processor.low:.0f}, {processor.high:.0f}] | {row.peak_memory_mb:,.0f} |"
            )
        return "\n".join(lines) + "\n"

    def as_dict(self) -> list[dict[str, Any]]:
        return [
            {
                "variant": row.name, "pass_at_1": row.pass_at_1._asdict(),
                "difference": row.difference._asdict() if row.difference else None, "verdict": row.verdict,
                "tokens": row.tokens, "seconds": row.seconds._asdict(),
                "processor_seconds": row.processor_seconds._asdict(), "peak_memory_mb": row.peak_memory_mb,
                "seeds": row.num_seeds,
            }
            for row in self.rows
        ]  # fmt: skip


class _Job(NamedTuple):
    variant: str
    recipe: Path
    over: tuple[str, ...]
    overrides: tuple[str, ...]
    directory: Path


def _is_finished(recipe: Recipe) -> bool:
    """Return whether the run of a recipe is there and finished. CheckpointError: one of other settings or inputs is."""
    run, inputs = RunDirectory(Path(recipe.run.directory)), references(recipe)
    if not run.finished.exists() or Records.of(run).planned_steps != recipe.run.num_steps:
        return False  # the run itself says whether it can go on
    taken, today = recorded(run.path)[0], {item.name: item.path for item in inputs}
    way_out = f"delete {run.path}, or choose another directory of the comparison"
    compare(run.path, inputs, (), f"Put back what was there, {way_out}")
    # what has its hash is the same, wherever it is now
    taken = [replace(item, path=today.get(item.name, item.path)) if item.sha256 else item for item in taken]
    wanted = dump_toml(with_precision(dated(with_chat(recipe))))
    if changed := differences(run, wanted, taken, inputs, partial(resolved, type(recipe))):
        said = "; ".join(changed.values())
        raise CheckpointError(f"{run.path} was made by another recipe: {said}. Put it back, {way_out}")
    return True


def compare_variants(
    source: Source, changes: Changes = (), on_run: Callable[[int, int], None] = lambda done, total: None
) -> ComparisonTable:
    """Run every variant with every seed, each in a process of its own, and set them side by side.

    Finished runs are kept, so an interrupted comparison resumes. It writes comparison.md and comparison.json.

    Args:
        source: a TOML file of a `Comparison`, or its tables. Recipes in it stand relative to the file, else to the
            current directory.
        changes: of the comparison's own keys, for example `{"seeds": 2}`.
        on_run: called with (runs done, runs in all) before the first and after each.

    Raises:
        ConfigError: the comparison, or a variant's recipe, cannot be used; said before anything runs.
        CheckpointError: a finished run is of other settings or inputs than it has now; likewise.
        GroupwiseError: a run failed; says which, and its last words.
    """
    comparison, folder = load(Comparison, source, changes), named(source)[1]
    jobs = list[_Job]()
    for seed, (name, variant) in product(range(comparison.seeds), comparison.variants.items()):
        directory = Path(comparison.directory) / f"{name}-seed{seed}"
        place = as_overrides({"run.directory": str(directory), "run.seed": seed})
        recipe = recipe_file(variant.recipe or comparison.recipe, folder)
        over = tuple(str(recipe_file(base, folder)) for base in variant.extends)
        jobs.append(_Job(name, recipe, over, (*comparison.overrides, *variant.overrides, *place), directory))
    # a mistake in the last variant answers before the first is run
    finished = {job.directory for job in jobs if _is_finished(load_recipe(job.recipe, job.overrides, job.over))}

    def train(job: _Job, children: Children) -> None:
        if job.directory in finished:
            return
        command = ["train", str(job.recipe)]
        command += [word for name in job.over for word in ("--extend", name)]
        command += [word for override in job.overrides for word in ("--set", override)]
        if fault := children.run(command):
            raise GroupwiseError(f"{job.directory} failed: {fault}")

    on_run(0, len(jobs))
    many(jobs, comparison.jobs, train, lambda job, done: on_run(done, len(jobs)))
    runs: dict[str, list[VariantRun]] = {name: [] for name in comparison.variants}
    for job in jobs:
        run = Records.open(job.directory).intact()
        if run.test_after is None:
            raise DataError(f"{job.directory} has no test evaluation: set evaluation.test_problems above 0 to compare")
        steps, phases = list(run.metrics()), ("generate_s", "verify_s", "train_s")
        figures = VariantRun(
            pass_at_1=float(run.test_after.line["pass_at_1"][0]),
            tokens=sum(int(step["sampled_tokens"]) for step in steps),
            seconds=sum(float(step[part]) for step in steps for part in phases),
            processor_seconds=sum(float(step["processor_s"]) for step in steps),
            peak_memory_mb=max(float(step["peak_memory_mb"]) for step in steps),
        )
        runs[job.variant].append(figures)
    table = ComparisonTable(tuple(summarised(runs)), Path(comparison.directory))
    write_file(table.directory / "comparison.md", table.as_markdown().encode())
    text = json.dumps(or_null(table.as_dict()), indent=1, allow_nan=False)
    write_file(table.directory / "comparison.json", text.encode())
    return table
