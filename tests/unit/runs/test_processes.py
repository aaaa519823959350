"""Processes end with what started them, and what they say comes back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.runs.processes import Children

PARENT = """
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from groupwise.runs.processes import Children

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts the tests in the background has it ignored
sys.executable = sys.argv[1]  # what stands for Python and so for `groupwise`
with ThreadPoolExecutor(1) as pool, Children(at_once=1) as children:
    runs = [pool.submit(children.run, [name], lambda line: print(line, flush=True)) for name in ("first", "second")]
    print([run.result() for run in runs])
"""


def _stand_in(folder: Path, body: str) -> str:
    """A program that is called as Python would be: `-m groupwise NAME`."""
    path = folder / "stand-in"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _begun(folder: Path) -> tuple["subprocess.Popen[str]", int]:
    """A parent whose first child runs, and the child's process number."""
    program = _stand_in(folder, 'echo "$3 $$"; exec sleep 60')
    parent = subprocess.Popen([sys.executable, "-c", PARENT, program], stdout=subprocess.PIPE, text=True)
    name, number = parent.stdout.readline().split()
    assert name == "first"
    return parent, int(number)


def _is_alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_sigterm_ends_the_children_and_begins_no_other(tmp_path: Path) -> None:
    parent, child = _begun(tmp_path)
    parent.terminate()
    rest, _ = parent.communicate(timeout=30)
    assert parent.returncode == 128 + signal.SIGTERM
    assert rest == ""  # the second was not begun
    assert not _is_alive(child)


def test_an_interrupt_reaches_each_child_once(tmp_path: Path) -> None:
    parent, child = _begun(tmp_path)
    parent.send_signal(signal.SIGINT)
    rest, _ = parent.communicate(timeout=30)
    assert "second" not in rest
    assert not _is_alive(child)


def test_a_failure_is_the_last_line_and_a_success_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "executable", _stand_in(tmp_path, 'echo "line of $3"; echo; echo "groupwise: no" >&2; exit "$4"')
    )
    lines: list[str] = []
    with Children(1) as children:
        assert children.run(["train", "3"], lines.append) == "no"
        assert children.run(["train", "0"], lines.append) is None
    assert lines == ["line of train", "groupwise: no"] * 2


def test_the_handler_of_before_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Children(1):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
