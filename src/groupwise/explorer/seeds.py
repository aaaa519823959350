"""Several runs of one pipeline with different seeds, side by side.

Means with intervals over seeds, and the change of each stage from the model that it started from, paired by seed. The
units of every interval are the seeds; problems are the same for all of them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise.errors import ConfigError
from groupwise.explorer.pipeline.data import Stage, load_pipeline
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import seed_directory

METRICS = (
    "pass_at_1", "pass_at_8", "majority_8", "format", "language", "mixed", "loops", "checks", "backtracks", "length",
    "after_first", "helpful", "harmless",
)  # fmt: skip


class Cell(NamedTuple):
    """A metric of a stage over seeds."""

    mean: Estimate
    change: Estimate | None


Table = Mapping[str, Mapping[str, Mapping[str, Cell]]]


def write_seeds_report(directory: str | Path, seeds: int) -> Path:
    """Write `seeds.md` and `seeds.json` into the directory of a pipeline that ran with seeds 0, 1, ...

    Args:
        directory: the recipe's `pipeline.directory`.
        seeds: number of seeds that it ran with.

    Returns:
        The path of `seeds.md`.

    Raises:
        ConfigError: a seed has not run, or the runs are not of the same stages.
        DataError: a file of a run cannot be read.
    """
    runs = [seed_directory(directory, seed) for seed in range(seeds)]
    table, page = seeds_table(runs), Path(directory) / "seeds.md"
    write_file(page, as_markdown(table, seeds, minutes(runs)).encode())
    write_file(page.with_suffix(".json"), json.dumps(as_dict(table), indent=1).encode())
    return page


def seeds_table(directories: Sequence[Path]) -> Table:
    """The cells of all tasks, stages and metrics that the runs have in common; ConfigError for runs of other stages."""
    runs = [load_pipeline(directory) for directory in directories]
    names = [[stage.name for stage in run.policies] for run in runs]
    if not runs or any(stages != names[0] for stages in names):
        raise ConfigError(f"these are not runs of one pipeline: their stages are {names}")
    table: dict[str, dict[str, dict[str, Cell]]] = {}
    for task in dict.fromkeys(task for stage in runs[0].policies for task in stage.evaluation):
        for name in names[0]:
            cells = table.setdefault(task, {}).setdefault(name, {})
            stages = [next(stage for stage in run.policies if stage.name == name) for run in runs]
            parents = [run.parent(stage) for run, stage in zip(runs, stages, strict=True)]
            for metric in METRICS:
                if (values := _values(stages, task, metric)) is None:
                    continue
                before = _values([parent for parent in parents if parent is not None], task, metric)
                is_paired = before is not None and len(before) == len(values)
                change = [a - b for a, b in zip(values, before or (), strict=True)] if is_paired else None
                cells[metric] = Cell(mean_over_seeds(values), mean_over_seeds(change) if change else None)
    return table


def _values(stages: Sequence[Stage], task: str, metric: str) -> list[float] | None:
    estimates = [stage.evaluation.get(task, {}).get(metric) for stage in stages]
    values = [estimate.value for estimate in estimates if estimate is not None]
    return values if values and len(values) == len(stages) else None


def minutes(directories: Sequence[Path]) -> list[float]:
    """Minutes of each run, evaluations included."""
    return [
        sum(
            stage.seconds.get(part, 0.0)
            for stage in load_pipeline(directory).stages
            for part in ("seconds", "evaluation_seconds")
        )
        / 60
        for directory in directories
    ]


def as_markdown(table: Table, num_seeds: int, durations: Sequence[float]) -> str:
    """The tables of all tasks."""
    lines = [
        f"# {num_seeds} seeds",
        "",
        "Means over seeds with Student's 95 % interval; in brackets after an arrow, what the stage changed in the "
        "model it started from, paired by seed, where that interval excludes zero.",
        "",
        f"Minutes: {', '.join(f'{duration:.1f}' for duration in durations)}.",
    ]
    for task, stages in table.items():
        metrics = [metric for metric in METRICS if any(metric in cells for cells in stages.values())]
        lines += ["", f"## {task}", "", f"| stage | {' | '.join(metrics)} |", f"|---|{'---|' * len(metrics)}"]
        for name, cells in stages.items():
            texts = []
            for metric in metrics:
                digits = 1 if metric in ("length", "after_first") else 3
                if (cell := cells.get(metric)) is None:
                    texts.append("-")
                    continue
                value, low, high = (f"{number:.{digits}f}" for number in cell.mean)
                is_sure = cell.change is not None and not cell.change.low <= 0 <= cell.change.high
                change = f" → ({cell.change.value:+.{digits}f})" if cell.change and is_sure else ""
                texts.append(f"{value} [{low}, {high}]{change}")
            lines.append(f"| {name} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def as_dict(table: Table) -> dict[str, Any]:
    """The table for machines: [value, low, high] of mean and change."""

    def entry(cell: Cell) -> dict[str, Any]:
        return {"mean": list(cell.mean), "change": None if cell.change is None else list(cell.change)}

    return {
        task: {name: {metric: entry(cell) for metric, cell in cells.items()} for name, cells in stages.items()}
        for task, stages in table.items()
    }
