"""`groupwise eval-steps`: what `evaluate_steps` measured as a table, or as JSON."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.evaluation.steps import evaluate_steps
from groupwise.models.loading import quiet_transformers

NAMES = {
    "threshold": "threshold",
    "f1": "F1 of the first mistake",
    "first_error_found": "first mistake named, where there is one",
    "correct_passed": "nothing named, where there is none",
    "auc": "area under the curve of steps",
    "calibration_error": "calibration error",
    "wrong_working_found": "named, where the answer is right and a step wrong",
    "lowest_at_end": "lowest score at the last step",
}


def run_step_evaluation(
    model: Path, file: Path, dev: Path | None, format: str, reference: str, beta: float, console: Console, as_json: bool
) -> None:
    """Measure and print a table or JSON; null or a dash where there was nothing to measure."""
    quiet_transformers()
    found = evaluate_steps(model, file, dev=dev, format=format, reference=reference, beta=beta)
    if as_json:
        print(json.dumps(_plain(found.as_dict()), indent=1, allow_nan=False))
        return
    chosen = f"threshold chosen on {dev}" if dev else "threshold 1/2"
    title = f"{file}: {found.rows} completions, {chosen}, 95 % intervals"
    table = Table(title=title, title_justify="left", show_header=False)
    for key, name in NAMES.items():
        value = getattr(found, key)
        number = value if isinstance(value, float) else value.value
        table.add_row(name, "-" if math.isnan(number) else f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
