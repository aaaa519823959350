"""A small recall, imported by the processes that the tests of this folder start."""

from pathlib import Path
from typing import Any

from groupwise.config import parse
from groupwise.recall.config import RecallRecipe
from groupwise.recall.run import run_recall


def recipe(directory: Path) -> RecallRecipe:
    web = {"kind": "worlds/web.py:MadeWeb", "num_pages": 300, "num_domains": 20}
    return parse(RecallRecipe, {
        "directory": str(directory), "sources": {"web": web}, "begin": {"num_texts": 60}, "rounds": {"max_rounds": 2},
    })  # fmt: skip


def run(directory: Path) -> dict[str, Any]:
    """Run it from its directory: a recipe that names the user's Python cannot be sent to another process."""
    return run_recall(recipe(directory), lambda what, done, total: None)
