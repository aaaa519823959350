"""A run's newest checkpoint as a plain model directory, with its card and the record of how it was made."""

import json
from pathlib import Path
from typing import Any

from groupwise.config import read_toml
from groupwise.errors import CheckpointError
from groupwise.models.checkpoint import write_plain
from groupwise.pages.card import card
from groupwise.runs.atomic import check_directory, new_directory, refuse_to_replace, write_file
from groupwise.runs.directory import PROVENANCE, RunDirectory, find_run

CARD = "README.md"
PARTS = ("seconds", "generate_s", "verify_s", "train_s")
"""What a step's time is written as: whole, or in its parts."""
CURVE_POINTS = 100
"""Points of the loss curve that are kept."""


def export(run_path: str | Path, directory: str | Path) -> None:
    """Write a run's newest checkpoint as a plain Hugging Face directory, with `provenance.json` and a model card.

    Adapters (LoRA) are added, in fp32, to the weights that they stand on.

    Args:
        run_path: a run directory.
        directory: where to write the model; one that was written in this way is replaced.

    Raises:
        ConfigError: there is no run at this path.
        CheckpointError: the run has no checkpoint, it is damaged, or something else is in the directory.
    """
    run, target = find_run(Path(run_path)), Path(directory)
    if not run.steps():
        raise CheckpointError(f"{run.path} has no checkpoint yet")
    newest = run.checkpoint(run.steps()[-1])
    check_directory(newest)
    refuse_to_replace(target)
    record = provenance(run)
    text = card(target.resolve().name, record, run, run.steps()[-1])
    with new_directory(target) as folder:
        write_plain(newest, folder)
        write_file(folder / PROVENANCE, json.dumps(record, indent=1, ensure_ascii=False).encode())
        write_file(folder / CARD, text.encode())


def provenance(run: RunDirectory) -> list[dict[str, Any]]:
    """Recipe, environment, tokens and loss curve of a run and of those it started from, oldest first."""
    recipe = read_toml(run.config)
    start = Path(recipe["model"]["path"])
    parent = start.parent.parent
    has_parent = not recipe.get("new_model") and start.is_dir() and (parent / "config.toml").exists()
    ancestors = provenance(find_run(parent)) if has_parent else []
    lines = list(run.metrics.lines())
    entry = {
        "recipe": recipe,
        "environment": json.loads((run.path / "environment.json").read_text()),
        "trained_tokens": sum(line.get("num_tokens", 0) for line in lines),
        "sampled_tokens": sum(line.get("sampled_tokens", 0) for line in lines),
        "seconds": round(sum(line.get(part, 0.0) for line in lines for part in PARTS), 1),
        "loss_curve": _curve(lines),
    }
    return [*ancestors, entry]


def _curve(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Mean loss over windows, as (last step of the window, nats per trained token)."""
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    size = max(1, len(losses) // CURVE_POINTS)
    windows = [losses[start : start + size] for start in range(0, len(losses), size)]
    return [(window[-1][0], round(sum(loss for _, loss in window) / len(window), 4)) for window in windows]
