"""A made web of a few hundred pages, collected once for all tests of this folder."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.recall.config import RecallRecipe
from groupwise.recall.run import run_recall

SMALL: dict[str, Any] = {
    "sources": {"web": {"kind": "worlds/web.py:MadeWeb", "num_pages": 700, "num_domains": 40, "planted": 0.5}},
    "begin": {"num_texts": 120},
    "classifier": {"negatives": 500},
    "decontaminate": {"tasks": {"products": {"kind": "arithmetic"}, "stories": {"kind": "word_problems"}}},
}


def small(directory: Path, *changes: str) -> RecallRecipe:
    return parse(RecallRecipe, {**SMALL, "directory": str(directory)}, changes)


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directory of a finished recall, and its figures."""
    directory = Path(tmp_path_factory.mktemp("recall") / "web")
    return directory, run_recall(small(directory), lambda what, done, total: None)


@pytest.fixture(scope="session")
def make_small() -> Any:
    """make_small(directory, *changes) -> its recipe."""
    return small
