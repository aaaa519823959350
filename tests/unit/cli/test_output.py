"""What the command prints: into terminals, pipes and disks of any kind, while it works, and where it fails."""

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli import main as run_command
from groupwise.cli.evaluate import figures
from groupwise.cli.main import _safe
from groupwise.config.places import Place
from groupwise.config.recipes import toml_literal
from groupwise.errors import ConfigError
from groupwise.runs import progress

MAIN = sys.modules["groupwise.cli.main"]


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("is_buffered", [True, False])
def test_what_a_terminal_cannot_print_is_replaced(encoding: str, is_buffered: bool, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb", buffering=-1 if is_buffered else 0) as file:
        own = io.TextIOWrapper(file, encoding)
        stream, _ = _safe(own)
        print("π → \ud800", file=stream)
        stream.flush()
        written = (tmp_path / "out").read_bytes()
    assert written == ("π → ".encode(encoding, "backslashreplace") + b"\\ud800\n")


def test_a_reader_that_went_away_and_a_full_disk_end_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    for descriptor, number in ((writer, errno.EPIPE), (full, errno.ENOSPC)):
        with os.fdopen(descriptor, "w", encoding="ascii") as own:
            stream, output = _safe(own)
            for _ in range(3):
                print("a step", file=stream, flush=True)
            assert output is not None
            assert output.lost is not None
            assert output.lost.errno == number
    with _safe(None)[0] as stream:  # it was closed before
        assert stream.write("x") == 1


def test_a_broken_command_of_a_package_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text("[groupwise.command]\nother = no_such_module\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-c", "import groupwise.cli.main"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "the command other (no_such_module) is not there: ModuleNotFoundError" in done.stderr


def ended(monkeypatch: pytest.MonkeyPatch, error: Any, words: list[str]) -> Any:
    def fails() -> None:
        raise error

    monkeypatch.setattr(MAIN, "app", fails)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))  # to be put back
    monkeypatch.setattr(sys, "argv", ["groupwise", *words])
    with pytest.raises(SystemExit) as end:
        run_command()
    return end.value.code


def test_a_fault_of_ours_is_a_file_in_the_run_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, named, other = (tmp_path / name for name in ("held", "named", "tmp"))
    for folder in (run, named, other):
        folder.mkdir()
    (named / "config.toml").touch()
    monkeypatch.setattr("tempfile.tempdir", str(other))
    monkeypatch.setattr(MAIN, "HELD", held := [run])
    monkeypatch.setattr(MAIN, "FOLDERS", set())
    for folder, words in ((run, ["train", "x"]), (named, ["doctor", str(named)]), (other, ["doctor"])):
        assert ended(monkeypatch, KeyError("step\nline"), words) == 70
        said = capfd.readouterr().err
        (file,) = folder.glob("groupwise-error-*.txt")
        assert said.count("\n") == 1
        assert said.startswith("groupwise: this is a fault of Groupwise, not yours: KeyError:")
        assert str(file) in said
        assert "Traceback (most recent call last)" in file.read_text()
        assert f"command: groupwise {words[0]}" in file.read_text()
        held.clear()


def test_a_fault_of_the_users_python_is_told_from_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(MAIN, "FOLDERS", {tmp_path})
    (tmp_path / "own.py").write_text("def called(function):\n    return function()\n")
    called = Place(tmp_path / "own.py", "called").load()
    own = f"{tmp_path}/own.py, line 2, in called: ZeroDivisionError: division by zero. It has a traceback, which is"
    ours = f"this is a fault of Groupwise, or of the Python in {tmp_path}: TypeError: Object of type"
    for function, status, begins in ((lambda: 1 / 0, 2, own), (lambda: toml_literal(1j), 70, ours)):
        with pytest.raises((ZeroDivisionError, TypeError)) as caught:
            called(function)
        assert ended(monkeypatch, caught.value, []) == status
        assert capfd.readouterr().err.startswith(f"groupwise: {begins}")


def test_an_error_that_a_user_can_mend_stays_a_sentence_with_status_2(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, ConfigError("task.kind = 'x'"), []) == 2
    assert capfd.readouterr().err == "groupwise: task.kind = 'x'\n"
    assert ended(monkeypatch, SystemExit(3), []) == 3


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_problems_without_a_difficulty_have_no_row_of_their_own() -> None:
    share = {"value": 0.5, "low": 0.25, "high": 0.75}
    summary = {"pass_at_1": share, "by_difficulty": {"": share, "hard": share}, "calls_by_difficulty": {"hard": share}}
    table = figures({"task": "t", "split": "s", "problems": 2, "samples": 1, "checkpoints": {"m": summary}})
    assert list(table.columns[0].cells) == ["pass@1", "pass@1, hard", "calls of tools, hard"]


def test_long_work_has_a_line_every_thirty_seconds_and_no_more() -> None:
    lines: list[str] = []
    clock = Clock()
    reporter = progress.Reporter(lines.append, clock=clock)
    reporter.say("problems", 0, 64)
    for second in range(1, 96):
        clock.now = float(second)
        if second % 10 == 0:
            reporter.say("problems", second // 10 * 4, 64)
        reporter.say("programs judged", 1, 3)
        reporter.say("programs judged", 3, 3)  # over
        reporter.look()
    assert lines == [
        "problems: 12 of 64, 0.4 a second, 2 min 10 s left",
        "problems: 24 of 64, 0.4 a second, 1 min 40 s left",
        "problems: 36 of 64, 0.4 a second, 1 min 10 s left",
    ]
    reporter.wrote()  # a step's line
    clock.now += 29
    reporter.look()
    assert len(lines) == 3
    reporter.say("problems", 64, 64)
    clock.now += 99
    reporter.look()
    assert len(lines) == 3  # nothing goes on


def test_work_that_says_nothing_is_seen_and_work_that_ends_early_is_over() -> None:
    lines: list[str] = []
    reporter = progress.Reporter(lines.append, every_s=0.01)
    with progress.shown(reporter, look_every_s=0.01):
        for _ in progress.counted("stuck", iter([1]), 9):
            while len(lines) < 2:
                pass
            break
    assert lines[0].startswith("stuck: 0 of 9 after 0 s")
    progress.say("nobody listens", 1, 2)
