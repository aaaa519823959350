"""Runs that differ in their seed alone: what is the recipe's, and what is chance.

Of a pipeline: means with intervals over seeds, and the change of each stage from the model that it started from, paired
by seed. The units of every interval are the seeds; problems are the same for all of them. Of a run: the curves of the
runs beside it.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_over_seeds
from groupwise.config import read_toml
from groupwise.errors import ConfigError, DataError
from groupwise.explorer.pipeline.data import Stage, load_pipeline
from groupwise.explorer.pipeline.tables import seconds
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import seed_directory
from groupwise.runs.ledger import or_null
from groupwise.runs.records import Records

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
    write_file(page.with_suffix(".json"), json.dumps(or_null(as_dict(table)), indent=1, allow_nan=False).encode())
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
    pipelines = [load_pipeline(directory) for directory in directories]
    return [sum(seconds(data, part) for part in ("seconds", "evaluation_seconds")) / 60 for data in pipelines]


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
    return {
        task: {
            name: {key: {"mean": [*cell.mean], "change": cell.change and [*cell.change]} for key, cell in cells.items()}
            for name, cells in stages.items()
        }
        for task, stages in table.items()
    }


MOST = 200

Curve = Mapping[int, float]


class Band(NamedTuple):
    """Several seeds at the steps that all of them have."""

    steps: list[int]
    low: list[float]
    mean: list[float]
    high: list[float]


def band(curves: Sequence[Curve]) -> Band:
    """The smallest, the mean and the largest value of all curves.

    >>> band([{0: 0.25, 5: 0.5}, {0: 0.75, 5: 1.0, 9: 1.0}])
    Band(steps=[0, 5], low=[0.25, 0.5], mean=[0.5, 0.75], high=[0.75, 1.0])
    """
    steps = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    values = [[curve[step] for curve in curves] for step in steps]
    return Band(steps, [min(each) for each in values], [fmean(each) for each in values], [max(each) for each in values])


def seed_curves(path: Path) -> dict[int, Curve]:
    """The curves of a run and of the readable ones beside it, by seed; empty where there is no other seed."""
    own, place = _recipe(path), path.resolve()
    found = {own[0]: _curve(path)}
    beside = (  # `runs/b` of `runs/a`, and `seed-1/run` of `seed-0/run`
        other
        for other in sorted([*place.parent.iterdir(), *place.parent.parent.glob(f"*/{place.name}")])
        if other != place and (other / "config.toml").is_file() and (other / "metrics.jsonl").is_file()
    )
    for other in islice(beside, MOST):
        try:
            seed, recipe = _recipe(other)
            if recipe == own[1] and seed not in found and (curve := _curve(other)):
                found[seed] = curve
        except (ConfigError, DataError, OSError, AttributeError, KeyError, TypeError, ValueError):  # of another program
            continue
    return found if len(found) > 1 else {}


def _recipe(path: Path) -> tuple[int, dict[str, Any]]:
    config = read_toml(path / "config.toml")
    run = {name: value for name, value in config["run"].items() if name not in ("seed", "directory")}
    return int(config["run"].get("seed", 0)), {**config, "run": run}


def _curve(path: Path) -> Curve:
    return {line["step"]: float(line["pass_at_1"][0]) for line in Records.open(path).intact().metrics("dev")}
