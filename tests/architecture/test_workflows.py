"""Workflows run nothing that can be changed from outside, and hold no right that they do not need."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_are_those_that_the_documents_name() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "lint", "release", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_least(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    actions = re.findall(r"uses: (\S+)(.*)", text)
    assert actions
    assert [name for name, note in actions if not re.search(r"@[0-9a-f]{40}$", name) or "# v" not in note] == []
    assert re.search(r"^permissions:\n  contents: read\n\n", text, re.MULTILINE)
    assert set(re.findall(r"([\w-]+): write", text)) <= {"id-token", "pages"}
    assert "secrets." not in text
    assert "pull_request_target" not in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_from_outside_is_put_into_a_script(path: Path) -> None:
    scripts = re.findall(r"run: (?:\|\n((?: {10}.*\n)+)|(.*))", path.read_text(encoding="utf-8"))
    assert scripts
    assert [script for script in scripts if "${{" in "".join(script)] == []
