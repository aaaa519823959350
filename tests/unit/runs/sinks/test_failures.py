"""Whatever a sink does, the run goes on, ends in bounded time, and warns exactly once."""

import json
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import parse
from groupwise.pipeline import load_pipeline
from groupwise.runs.directory import begin_run
from groupwise.runs.sinks import SINKS, SinkFiles, Sinks
from groupwise.trainers import train
from groupwise.trainers.sft import SftRecipe

MINE = '''
import os, sys, time
from pathlib import Path
from groupwise.runs.sinks import Sink, SinkConfig

class Kept(Sink):
    """Keeps the numbers of the lines it was given."""
    def __init__(self, config, run):
        self.file = run.path / "kept.txt"
    def write(self, lines):
        with self.file.open("a") as file:
            file.writelines(f"{line.number} {line.kind} {line.step}\\n" for line in lines)

class Prints(Kept):
    def write(self, lines):
        print("much to say", flush=True)
        super().write(lines)

class RaisesAtOnce(Kept):
    def __init__(self, config, run):
        raise OSError("no route to host")

class Raises(Kept):
    def write(self, lines):
        raise ValueError("no such project")

class RaisesAtTheEnd(Kept):
    def close(self):
        raise ValueError("could not flush")

class Hangs(Kept):
    def write(self, lines):
        time.sleep(3600)

class Exits(Kept):
    def write(self, lines):
        sys.exit(0)

class ExitsHard(Kept):
    def close(self):
        os._exit(0)

class NeedsAPackage(Kept):
    def __init__(self, config, run):
        import a_package_that_nobody_installed

class NeedsOurs(Kept):
    def __init__(self, config, run):
        raise ModuleNotFoundError("No module named 'mlflow'", name="mlflow")
'''


@pytest.fixture
def mine(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """mine(name) -> section of a sink of one's own."""
    (tmp_path / "mine.py").write_text(MINE)
    return lambda name: {"kind": f"{tmp_path / 'mine.py'}:{name}"}


FAILURES = {
    "RaisesAtOnce": "OSError: no route to host", "Raises": "ValueError: no such project",
    "RaisesAtTheEnd": "ValueError: could not flush",
    "Hangs": r"it had not taken the last lines 0\.5 s after the run's end \(sinks\.bad\.wait_s\)",
    "Exits": "it ended with status 0", "ExitsHard": "it ended with status 0",
    "NeedsAPackage": "ModuleNotFoundError: No module named 'a_package_that_nobody_installed'",
    "NeedsOurs": r"ModuleNotFoundError: No module named 'mlflow'; pip install 'groupwise\[mlflow\]'",
}  # fmt: skip


def recipe(directory: Path, sinks: dict[str, Any]) -> SftRecipe:
    shape = {"architecture": "qwen2", "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 8}
    tables = {
        "run": {"directory": str(directory), "num_steps": 3}, "new_model": shape,
        "data": {"source": "texts", "text": "worlds/diet.py:Diet"},
        "sft": {"sequences_per_step": 2}, "sinks": sinks, "model": {"device": "cpu"},
    }  # fmt: skip
    return parse(SftRecipe, tables)


def ledger(run: Path) -> bytes:
    """What a sink must not change; the record of the recipe does not name it either."""
    assert "sinks" not in (run / "config.toml").read_text()
    return (run / "ledger.jsonl").read_bytes()


def kept(run: Path) -> list[int]:
    """Numbers of the lines that `Kept` was given."""
    return [int(line.split()[0]) for line in (run / "kept.txt").read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a run without sinks leaves."""
    path = tmp_path_factory.mktemp("plain") / "run"
    train(recipe(path, {}))
    return ledger(path)


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_sink_is_one_warning_and_the_same_ledger(
    tmp_path: Path, plain: bytes, mine: Callable[..., Any], name: str
) -> None:
    patience = {"wait_s": 0.5 if name == "Hangs" else 120.0}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(recipe(tmp_path / "run", {"bad": mine(name) | patience}))
    (warning,) = [str(one.message) for one in said if issubclass(one.category, UserWarning)]
    expected = f"sink bad failed, and the run continues without it: {FAILURES[name]}. See {tmp_path}/run/sinks/bad.log"
    assert re.fullmatch(expected, warning)
    assert ledger(tmp_path / "run") == plain


def test_a_working_sink_gets_every_line_and_its_words_stay_off_the_terminal(
    tmp_path: Path, plain: bytes, mine: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    train(recipe(tmp_path / "run", {"talker": mine("Prints") | {"wait_s": 120.0}}))
    assert capfd.readouterr() == ("", "")
    assert "much to say" in (tmp_path / "run/sinks/talker.log").read_text()
    assert kept(tmp_path / "run") == [0, 1, 2]
    assert ledger(tmp_path / "run") == plain


KILLED = """
import json, os, signal, sys
from pathlib import Path
from groupwise.runs.directory import RunDirectory
from groupwise.runs.sinks import SINKS
from groupwise.runs.sinks import Sinks
run = RunDirectory(Path(sys.argv[1]))
Sinks.start(run.path, {"mine": SINKS.read(json.loads(sys.argv[2]))})
for step in range(5):
    run.metrics.append({"step": step, "loss": 0.5, "time": 1.0})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_no_step_is_doubled_or_lost_and_no_process_stays(tmp_path: Path, mine: Callable[..., Any]) -> None:
    run, section = begin_run(tmp_path / "run", 'algorithm = "sft"\n'), mine("Kept") | {"wait_s": 120.0}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run.path), json.dumps(section)], check=False)
    assert killed.returncode == -signal.SIGKILL
    run.metrics.truncate(len(run.metrics.path.read_bytes().splitlines(keepends=True)[0]) * 2)  # its last checkpoint
    sinks = Sinks.start(run.path, {"mine": SINKS.read(section)})  # type: ignore[dict-item]
    for step in range(2, 7):
        run.metrics.append({"step": step, "loss": 0.5, "time": 2.0})
    sinks.finish()
    assert kept(run.path) == list(range(7))
    assert SinkFiles(run.path, "mine").read().closed


def test_a_finished_run_that_goes_on_to_more_steps_loses_none(tmp_path: Path, mine: Callable[..., Any]) -> None:
    run, sections = begin_run(tmp_path / "run", 'algorithm = "sft"\n'), {"mine": SINKS.read(mine("Kept"))}
    for steps in (range(2), range(2, 4)):
        sinks = Sinks.start(run.path, sections)  # type: ignore[arg-type]
        for step in steps:
            run.metrics.append({"step": step, "loss": 0.5, "time": 1.0})
        checkpoint = len(run.metrics.path.read_bytes())
        run.metrics.append({"kind": "test-after", "step": step + 1, "time": 1.0})
        sinks.finish()
        run.metrics.truncate(checkpoint)
    lines = ["step 0", "step 1", "test-after 2", "step 2", "step 3", "test-after 4"]
    assert (run.path / "kept.txt").read_text().splitlines() == [f"{i} {line}" for i, line in enumerate(lines)]


def test_a_run_that_an_error_left_behind_goes_on_in_the_same_process(tmp_path: Path, mine: Callable[..., Any]) -> None:
    run, sections = begin_run(tmp_path / "run", 'algorithm = "sft"\n'), {"mine": SINKS.read(mine("Kept"))}
    started = []
    for step in range(2):
        started.append(Sinks.start(run.path, sections))  # type: ignore[arg-type]
        run.metrics.append({"step": step, "loss": 0.5, "time": 1.0})
    started[1].finish()
    assert kept(run.path) == [0, 1]
    assert [feed.process.wait() for feed in started[0]._live.values()] == [0]


def test_a_run_that_is_begun_anew_is_another_one_in_the_store(tmp_path: Path) -> None:
    files = SinkFiles(begin_run(tmp_path / "run", 'algorithm = "sft"\n').path, "mine")
    old = files.begin()
    begin_run(tmp_path / "run", 'algorithm = "sft"\n')
    new = files.begin()
    files.write(replace(old, lines=7))  # of a process that still hands on the last lines of the deleted run
    assert old.id != new.id
    assert files.read() == new


def test_sinks_are_no_part_of_what_a_run_or_a_stage_depends_on(tmp_path: Path, mine: Callable[..., Any]) -> None:
    path, kind = tmp_path / "pipeline.toml", json.dumps(mine("Kept")["kind"])

    def stage(sinks: str) -> Any:
        path.write_text(
            f'[pipeline]\ndirectory = "{tmp_path}"\n[tasks.sums]\nkind = "arithmetic"\n{sinks}'
            '[stages.rl]\nalgorithm = "grpo"\ntask = "sums"\nrun.num_steps = 1\n'
        )
        return load_pipeline(path)[1][0]

    plain, shown = stage(""), stage(f"[sinks.board]\nkind = {kind}\n")
    assert list(shown.config.sinks) == ["board"]
    assert (shown.settings, shown.files, shown.code) == (plain.settings, plain.files, plain.code)
