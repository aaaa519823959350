"""`groupwise eval`: what `evaluate` measured as a table, or as JSON."""

import json
import math
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.algorithms.statistics import Estimate
from groupwise.cli.second import show_second
from groupwise.evaluation.measure import evaluate
from groupwise.evaluation.metrics import metric, show
from groupwise.models.loading import quiet_transformers


def run_evaluation(checkpoint: str, console: Console, as_json: bool, **options: Any) -> None:
    """Evaluate one or two checkpoints and print a table or JSON; the options are those of `evaluate`."""
    quiet_transformers()
    with console.status("sampling and verifying") if not as_json else nullcontext():
        measurement = evaluate(checkpoint, **options)
    if as_json:
        print(json.dumps(_nan_to_null(measurement.as_dict()), indent=1, ensure_ascii=False, allow_nan=False))
        return
    console.print(_table(measurement.as_dict()))
    for check in measurement.second.values():
        show_second(check, console)
    if gain := measurement.difference:
        console.print(
            f"pass@1, paired difference to {options['against']}: {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        )


def _nan_to_null(value: Any) -> Any:
    """The value with null for what JSON has no number for: an interval over a single problem has no ends."""
    if isinstance(value, dict):
        return {key: _nan_to_null(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(result: dict[str, Any]) -> Table:
    size = f"{result['problems']} problems × {result['samples']} samples"
    title = f"{result['task']}, {result['split']}: {size}, 95 % intervals"
    table = Table(title=title, title_justify="left", min_width=60)
    table.add_column("", overflow="fold")
    for name in result["checkpoints"]:
        table.add_column(name, justify="right", overflow="fold")
    summaries = list(result["checkpoints"].values())
    keys = dict.fromkeys(key for summary in summaries for key in summary)
    # the second verifier has a line of its own
    for key in [key for key in keys if key not in ("by_difficulty", "calls_by_difficulty", "second")]:
        name = key.replace("_", " ") if key in ("verdict_errors", "no_verdict") else metric(key).name
        table.add_row(name, *(_cell(key, summary.get(key)) for summary in summaries))
    for label in summaries[0]["by_difficulty"]:
        cells = (_cell("pass_at_1", summary["by_difficulty"].get(label)) for summary in summaries)
        table.add_row(f"pass@1, {label}", *cells)
    for label in summaries[0].get("calls_by_difficulty", {}):
        cells = (_cell("calls", summary.get("calls_by_difficulty", {}).get(label)) for summary in summaries)
        table.add_row(f"calls of tools, {label}", *cells)
    return table


def _cell(key: str, value: Any) -> str:
    if isinstance(value, dict):
        estimate = Estimate(**value)
        return str(estimate) if key.startswith(("pass_at_", "majority_")) else show(estimate, metric(key))
    return "-" if value is None else str(value)
