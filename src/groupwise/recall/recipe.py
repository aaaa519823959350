"""A recipe of recall alone, in a directory of its own."""

import json
import shutil
from pathlib import Path
from typing import Any

from pydantic import Field

from groupwise.errors import CheckpointError
from groupwise.recall.config import RecallConfig
from groupwise.recall.prepared import Progress
from groupwise.recall.run import Recall
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import flattened
from groupwise.runs.lock import Hold

SETTINGS = "settings.json"


class RecallRecipe(RecallConfig):
    """Recall alone, without a pipeline: `groupwise recall`."""

    directory: str = Field(min_length=1)
    """Where the work is kept; the same command goes on in it."""


def run_recall(recipe: RecallRecipe, progress: Progress, restart: bool = False) -> dict[str, Any]:
    """Run a recipe, or go on where it was interrupted; returns the figures of `recall.json`.

    Args:
        recipe: what to do, and where.
        progress: called with how far a long piece of work is: (what, done, total).
        restart: delete what an earlier call left.

    Raises:
        CheckpointError: the directory holds the work of other settings, or something else, or is in use.
        WaitingError: people have to answer first.
    """
    directory = Path(recipe.directory)
    _check(recipe, directory, restart)
    hold = Hold(directory, "directory")
    try:
        if restart:
            _empty(directory)
        settings = recipe.model_dump(mode="json", exclude={"directory"})
        write_file(directory / SETTINGS, (json.dumps(settings, indent=1) + "\n").encode())
        return Recall(recipe, directory, progress).run()
    finally:
        hold.release()


def _check(recipe: RecallRecipe, directory: Path, restart: bool) -> None:
    """What is there was begun with these settings, or is nothing."""
    if not directory.exists() or not any(directory.iterdir()):
        return
    if not (directory / SETTINGS).is_file():
        if {path.name for path in directory.iterdir()} <= {"lock", f".{SETTINGS}.tmp"}:
            return
        raise CheckpointError(f"{directory} exists and holds no recall: choose another directory")
    before = flattened(json.loads((directory / SETTINGS).read_text("utf-8")))
    now = flattened(recipe.model_dump(mode="json", exclude={"directory"}))
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed and not restart:
        key = changed[0]
        raise CheckpointError(
            f"{directory} was begun with {key} = {before.get(key)!r}, and it is {now.get(key)!r} now: choose another "
            "directory, or --restart to delete what is there"
        )


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
