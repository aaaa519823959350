"""Runs beside a run that differ from it in their seed alone: what of a curve is the recipe's, and what is chance."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from groupwise.config import read_toml
from groupwise.errors import ConfigError, DataError
from groupwise.runs.records import Records

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
        except (ConfigError, DataError, OSError, KeyError, TypeError, ValueError):
            continue
    return found if len(found) > 1 else {}


def _recipe(path: Path) -> tuple[int, dict[str, Any]]:
    config = read_toml(path / "config.toml")
    run = {name: value for name, value in config["run"].items() if name not in ("seed", "directory")}
    return int(config["run"].get("seed", 0)), {**config, "run": run}


def _curve(path: Path) -> Curve:
    lines = Records.open(path).intact().metrics("dev")
    return {line["step"]: float(line["pass_at_1"][0]) for line in lines}
