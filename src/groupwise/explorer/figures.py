"""Figures of a run's lines, as columns of numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST_METRICS = 400


def columns_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every number of the lines by its dotted name, a value per step; None where a line has none."""
    flat = [_numbers(line) for line in lines]
    names = list(dict.fromkeys(name for line in flat for name in line if name != "step"))[:MOST_METRICS]
    return {"steps": [line["step"] for line in lines], "columns": {n: [line.get(n) for line in flat] for n in names}}


def first_number(value: Any) -> float | None:
    """The estimate of [estimate, low, high]."""
    first = value[0] if isinstance(value, list) and value else value
    return float(first) if isinstance(first, int | float) and not isinstance(first, bool) else None


def _numbers(table: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    flat: dict[str, float] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat |= _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            flat[f"{prefix}{name}"] = value
    return flat
