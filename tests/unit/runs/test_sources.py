"""The user's own Python in a run's record: copied, and said where it was changed."""

import json
from pathlib import Path

import pytest

from groupwise.runs.directory import begin_run, open_run

RECIPE = 'algorithm = "grpo"\n'


def test_sources_are_copied_and_a_change_is_said_once(tmp_path: Path) -> None:
    rewards = tmp_path / "rewards.py"
    rewards.write_text("first\n")
    run, _ = open_run(tmp_path / "run", RECIPE, [rewards])
    run.ledger.append({"step": 0})
    open_run(tmp_path / "run", RECIPE, [rewards])
    rewards.write_text("second\n")
    with pytest.warns(UserWarning, match=r"rewards\.py was changed since the run began"):
        open_run(tmp_path / "run", RECIPE, [rewards])
    open_run(tmp_path / "run", RECIPE, [rewards])  # it is known now
    index = json.loads((run.path / "sources" / "index.json").read_text())
    assert [(run.path / "sources" / one["copy"]).read_text() for one in index] == ["first\n", "second\n"]


def test_a_run_without_sources_has_no_folder_for_them(tmp_path: Path) -> None:
    assert not (begin_run(tmp_path / "run", RECIPE).path / "sources").exists()
