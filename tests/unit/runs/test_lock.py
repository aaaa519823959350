"""Processes in one directory refuse each other; a hold ends with its holder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from groupwise.errors import CheckpointError
from groupwise.runs.atomic import LOCK, Hold
from groupwise.runs.directory import begin_run, hold_run, open_run
from groupwise.training.config import Recipe, RunConfig
from groupwise.training.session import Start

RECIPE = 'algorithm = "grpo"\n'
HOLDER = """
import sys
from pathlib import Path
from groupwise.runs.atomic import Hold
hold = Hold(Path(sys.argv[1]), "run.directory")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the directory until it is told to end."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_what_another_process_holds_is_refused_until_it_is_killed(tmp_path: Path) -> None:
    place = tmp_path / "new" / "run"
    with another_process(place) as process:
        with pytest.raises(CheckpointError, match=r"another process works in .*run: .* choose another run\.directory"):
            Hold(place, "run.directory")
        process.kill()
        process.wait()
        Hold(place, "run.directory").release()


def test_one_process_may_hold_twice_and_keeps_it_until_the_last_release(tmp_path: Path) -> None:
    first, second = Hold(tmp_path, "run.directory"), Hold(tmp_path, "run.directory")
    first.release()
    first.release()
    check = [sys.executable, "-c", HOLDER, str(tmp_path)]
    refused = subprocess.run(check, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert "another process works in" in refused.stderr
    second.release()
    assert subprocess.run(check, stdin=subprocess.DEVNULL, capture_output=True, text=True).stdout == "held\n"


def test_a_hold_ends_with_its_object(tmp_path: Path) -> None:
    hold = Hold(tmp_path, "run.directory")
    del hold
    with another_process(tmp_path):
        pass


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_that_another_process_works_on_is_neither_resumed_nor_deleted(tmp_path: Path, restart: bool) -> None:
    run = open_run(tmp_path / "run", RECIPE)[0]
    run.ledger.append({"step": 0})
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    config = RunConfig(directory=str(run.path), num_steps=1)
    with another_process(run.path), pytest.raises(CheckpointError, match="another process works in"):
        Start(Recipe(algorithm="grpo", run=config), config, restart)
    assert {path: path.read_bytes() for path in before} == before


def test_the_lock_outlives_a_restart_so_that_nobody_slips_in(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", RECIPE)[0]
    hold = hold_run(run.path)
    number = (run.path / LOCK).stat().st_ino
    begin_run(run.path, RECIPE)
    assert (run.path / LOCK).stat().st_ino == number
    hold.release()
