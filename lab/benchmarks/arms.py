"""Shared by the ablations of finished pipelines: every arm of every seed in turn, and means over the seeds."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from groupwise.algorithms.statistics import mean_over_seeds
from groupwise.models.loading import quiet_transformers

Figures = dict[str, float]


def every_seed(
    says: str | None,
    names: Sequence[str],
    measured: Callable[[Path, str], Figures],
    arguments: Sequence[str] | None = None,
) -> dict[str, list[Figures]]:
    """The figures of each arm, one for each pipeline that the command line names.

    Args:
        says: what the benchmark says of itself.
        names: of the arms.
        measured: figures of an arm of a pipeline, which is trained where it is missing.
        arguments: of the command line; None: those of this process.
    """
    parser = argparse.ArgumentParser(description=says, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipelines", type=Path, nargs="+", help="directories of finished pipelines, one a seed")
    options = parser.parse_args(arguments)
    quiet_transformers()
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for pipeline in options.pipelines:
        for name in names:
            results[name].append(measured(pipeline, name))
            print(f"{pipeline}, {name}: {results[name][-1]}", flush=True)
    return results


def interval(values: Sequence[float], digits: str) -> str:
    """The mean over seeds with Student's 95 % interval, in these digits (`.3f`, `+.3g`)."""
    mean = mean_over_seeds(values)
    return f"{mean.value:{digits}} [{mean.low:{digits}}, {mean.high:{digits}}]"
