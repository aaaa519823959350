"""README, AGENTS.md and docs/architecture.md name what is there: files, make targets, every recipe and every room."""

import inspect
import re
from pathlib import Path

import pytest

from groupwise.trainers.grpo import grpo_step

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "groupwise"
README = (ROOT / "README.md").read_text(encoding="utf-8")
AGENTS = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURE = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
MAX_LINES = 60


def named_paths(text: str) -> set[str]:
    """Return the paths in backticks: those with a slash or a suffix."""
    return {name for name in re.findall(r"`([\w./-]+)`", text) if "/" in name or name.endswith((".py", ".md"))}


@pytest.mark.parametrize("text", [AGENTS, MAP], ids=["AGENTS.md", "architecture.md"])
def test_every_file_that_is_named_exists(text: str) -> None:
    paths = named_paths(text)
    assert len(paths) > 8
    assert sorted(path for path in paths if not any((at / path).exists() for at in (ROOT, PACKAGE))) == []


def test_a_missing_file_is_seen() -> None:
    assert named_paths("see `tasks/none.py`, `groupwise keys` and `README.md`") == {"tasks/none.py", "README.md"}


def test_make_targets_exist_and_the_page_for_agents_is_short() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([\w-]+)`", AGENTS))
    assert named
    assert named <= targets
    assert len(AGENTS.splitlines()) < MAX_LINES


def test_every_room_is_in_the_picture() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    rooms -= {"__init__", "__main__"}
    assert len(rooms) > 10
    assert sorted(room for room in rooms if not re.search(rf">[^<]*\b{room}\b", PICTURE)) == []


def test_the_readme_has_the_step_of_the_code_and_every_recipe() -> None:
    assert inspect.getsource(grpo_step).strip() in README
    assert [path.name for path in (ROOT / "recipes").glob("*.toml") if path.name not in README] == []
