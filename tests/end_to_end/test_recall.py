"""Recall is killed for good, by the system, and goes on; and its command says what it did."""

import json
import signal
from pathlib import Path

import pytest
import small_recall
from commands import succeed
from signalled_run import exit_code

NAMING_PLACES = ("lock", "inputs.json")


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name not in NAMING_PLACES)
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = Path(tmp_path_factory.mktemp("uninterrupted") / "web")
    small_recall.run(directory)
    return directory


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "place",  # what a kill elsewhere leaves is imitated every day (tests/unit/recall/test_run.py)
    [*(pytest.param(name, marks=pytest.mark.slow) for name in (".pages.jsonl.tmp", ".recall.json.tmp")),
     ".round-2.json.tmp"],
)  # fmt: skip
def test_a_kill_changes_no_byte(finished: Path, tmp_path: Path, place: str) -> None:
    directory = tmp_path / "web"
    assert exit_code(directory, place, small_recall.run) == -signal.SIGKILL
    assert not (tmp_path / "web" / place[1:-4]).exists()
    small_recall.run(directory)
    found = contents(tmp_path / "web")
    assert {name: found.get(name) for name in contents(finished)} == contents(finished)


def test_the_command_reports(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "recipes" / "recall.toml"
    changes = [
        f"directory={tmp_path / 'web'}", "sources.web.num_pages=200", "sources.web.num_domains=20",
        "begin.num_texts=40", "rounds.max_rounds=1", "sources.docstrings.mathematics=[\"mpmath\"]",
        "sources.docstrings.others=[\"logging\"]",
    ]  # fmt: skip
    words = [part for change in changes for part in ("--set", change)]
    out = succeed("pipeline", file, *words)
    assert "round 1: " in out
    [first] = json.loads((tmp_path / "web" / "recall.json").read_text())["rounds"]
    assert first["seed"] == 40 + 20  # those of the made web, and docstrings that the recipe says are known
    assert "precision" in out
    assert (tmp_path / "web" / "report.md").exists()
