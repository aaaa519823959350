"""A recipe of recall alone, in a directory of its own."""

import json
import shutil
from collections.abc import Set
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
    """Recall alone, without a pipeline: `groupwise pipeline recipes/recall.toml`."""

    directory: str = Field(min_length=1)
    """Where the work is kept; the same command goes on in it."""


def run_recall(recipe: RecallRecipe, progress: Progress, restart: bool = False) -> dict[str, Any]:
    """Run a recipe, or go on where it was interrupted; returns the figures of `recall.json`.

    Args:
        recipe: what to do, and where.
        progress: called with how far a long piece of work is: (what, done, total).
        restart: delete what an earlier call left, but what people wrote.

    Raises:
        CheckpointError: the directory holds the work of other settings, or something else, or is in use.
        WaitingError: people have to answer first.
    """
    directory = Path(recipe.directory)
    _check(recipe, directory, restart)
    hold = Hold(directory, "directory")
    try:
        if restart:
            _empty(directory, {directory.resolve() / "lock", *_of_people(recipe, directory)})
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
        allowed = {directory.resolve() / name for name in ("lock", f".{SETTINGS}.tmp")}
        if _left_but(directory, allowed | _of_people(recipe, directory)) == 0:
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


def _of_people(recipe: RecallRecipe, directory: Path) -> set[Path]:
    """The files with people's answers, by these settings and by those that the directory was begun with."""
    file = directory / SETTINGS
    before = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    annotators = (recipe.annotator.model_dump(mode="json"), before.get("annotator") or {})
    return {Path(one["path"]).resolve() for one in annotators if isinstance(one.get("path"), str)}


def _left_but(directory: Path, known: Set[Path]) -> int:
    """How many files there are beside the known ones."""
    return sum(path.resolve() not in known for path in directory.rglob("*") if path.is_symlink() or not path.is_dir())


def _empty(directory: Path, kept: Set[Path]) -> None:
    """Delete what is in a directory but some files."""
    for path in directory.iterdir():
        if path.resolve() in kept:
            continue
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif any(path.resolve() in one.parents for one in kept):
            _empty(path, kept)
        else:
            shutil.rmtree(path)
