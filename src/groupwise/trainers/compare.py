"""Runs the variants of a comparison and sets them side by side. `groupwise train` adds a bar."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.config import Changes, Source, load, named, recipe_file
from groupwise.errors import GroupwiseError
from groupwise.evaluation.compare import Compared, Comparison, VariantRun, as_dict, as_markdown, read_run, rows
from groupwise.runs.many import Children, many
from groupwise.trainers import load_recipe


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Result of a comparison."""

    rows: tuple[Compared, ...]
    directory: Path

    def as_markdown(self) -> str:
        return as_markdown(self.rows)

    def as_dict(self) -> list[dict[str, Any]]:
        return as_dict(self.rows)


class _Job(NamedTuple):
    variant: str
    recipe: Path
    over: tuple[str, ...]
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
        on_run: called with (runs done, runs in all) before the first and after each.

    Raises:
        ConfigError: the comparison, or a variant's recipe, cannot be used; said before anything runs.
        GroupwiseError: a run failed; says which, and its last words.
    """
    comparison, folder = load(Comparison, source, changes), named(source)[1]
    jobs = list[_Job]()
    for seed, (name, variant) in product(range(comparison.seeds), comparison.variants.items()):
        directory = Path(comparison.directory) / f"{name}-seed{seed}"
        place = (f"run.directory={json.dumps(str(directory))}", f"run.seed={seed}")
        recipe = recipe_file(variant.recipe or comparison.recipe, folder)
        over = tuple(str(recipe_file(base, folder)) for base in variant.extends)
        jobs.append(_Job(name, recipe, over, (*comparison.overrides, *variant.overrides, *place), directory))
    for job in jobs:  # a mistake in the last variant answers before the first is run
        load_recipe(job.recipe, job.overrides, job.over)

    def train(job: _Job, children: Children) -> None:
        if (job.directory / "finished.json").exists():
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
        runs[job.variant].append(read_run(job.directory))
    table = ComparisonTable(tuple(rows(runs)), Path(comparison.directory))
    (table.directory / "comparison.md").write_text(table.as_markdown(), encoding="utf-8")
    (table.directory / "comparison.json").write_text(json.dumps(table.as_dict(), indent=1), encoding="utf-8")
    return table
