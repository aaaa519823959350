"""Runs that go on at the same time know of each other; what a killed one leaves is nobody's neighbour and goes away."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.runs.lock import announced

OTHER = """
import sys
from pathlib import Path
from groupwise.runs.lock import announced
with announced(Path(sys.argv[1])) as neighbours:
    print(neighbours.news(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / f"groupwise-{os.getuid()}"


def test_each_is_told_of_the_other_once_also_of_one_that_is_killed(runtime: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(tmp_path / "other")]
    with announced(tmp_path / "mine") as neighbours:
        assert neighbours.news() == []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == f"[{str(tmp_path / 'mine')!r}]\n"
            assert neighbours.news() == [str(tmp_path / "other")]
            assert neighbours.news() == []
            other.send_signal(signal.SIGKILL)
        assert len(list(runtime.iterdir())) == 2
        with announced(tmp_path / "third") as third:
            assert third.news() == [str(tmp_path / "mine")]
            assert neighbours.news() == [str(tmp_path / "third")]
        assert len(list(runtime.iterdir())) == 1
    assert list(runtime.iterdir()) == []


def test_where_nothing_can_be_written_a_run_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not there"))
    with announced(tmp_path / "mine") as neighbours:
        assert neighbours.news() == []
