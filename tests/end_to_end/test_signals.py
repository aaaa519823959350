"""Commands that a signal ends at once: one sentence says what is kept, in processes of their own."""

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import processes
import pytest
from commands import groupwise

from groupwise.checks.preflight import rehearsal
from groupwise.runs.processes import Stopped

REWARD = """
import time
from pathlib import Path


def slow(prompt, completion, reference):
    Path("begun").touch()
    time.sleep(600)
    return 1.0
"""
NOTHING = "nothing of it is kept, and the same command begins again"
SLOW = ["--task", "arithmetic", "--set", "verifier.kind=reward.py:slow", "--set", "verifier.timeout_s=600"]
FEW = ["--problems", "2", "--samples", "2"]
PREFLIGHT = [
    "preflight", "arithmetic.toml", "--set", "verifier.kind=reward.py:slow", "--set", "verifier.timeout_s=600",
]  # fmt: skip


def ended(command: list[str], number: signal.Signals, is_begun: Callable[[], bool]) -> tuple[int | None, str]:
    """Run a command until something has begun, send a signal, and return its status and its last line."""
    words = [sys.executable, "-m", "groupwise", *command]
    with processes.Popen(words, stdout=processes.PIPE) as process:
        until = time.monotonic() + 300
        while not is_begun() and process.returncode is None and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        said = process.stdout.read()
    assert "Traceback" not in said
    return process.returncode, said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "number", "kept"),
    [
        (["eval", "base", *FEW, *SLOW], signal.SIGTERM, NOTHING),
        (["sample", "base", *SLOW], signal.SIGUSR1, NOTHING),
        (["budget", "base", "--budgets", "1,2", *FEW, *SLOW], signal.SIGINT,
         "what was finished is kept in runs/budget, and the same command resumes there"),
        (PREFLIGHT, signal.SIGTERM, NOTHING),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_command_says_what_is_kept(
    command: list[str], number: signal.Signals, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "reward.py").write_text(REWARD)
    status, line = ended(command, number, (tmp_path / "begun").exists)
    assert (status, line) == (128 + number, f"groupwise: stopped by {number.name}; {kept}")


PIPELINE = """
[pipeline]
directory = "pipeline"

[model]
device = "cpu"
num_threads = 1

[sampling]
max_tokens = 64

[measure]
num_problems = 1
num_samples = 1

[tasks.sums]
kind = "arithmetic"
num_problems = 64
verifier = { kind = "reward.py:slow", timeout_s = 600 }

[stages.kept]
kind = "rejection_sampling"
path = "{base}"
task = "sums"
num_problems = 40
num_samples = 1
num_rows = 4
filters = { correct = false, tags = false }
"""
SECOND_PART = """
import time
from pathlib import Path


def slow(prompt, completion, reference):
    if [*Path("pipeline/stages/kept/samples").glob("*.parquet")] and not Path("again").exists():
        Path("begun").touch()
        time.sleep(600)
    return 1.0
"""


def test_a_data_stage_resumes_behind_the_samples_that_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "reward.py").write_text(SECOND_PART)
    (tmp_path / "recipe.toml").write_text(PIPELINE)
    command = ["pipeline", "recipe.toml", "--only", "kept"]
    status, line = ended(command, signal.SIGTERM, (tmp_path / "begun").exists)
    kept = "what was finished is kept in pipeline, and the same command resumes there"
    assert (status, line) == (128 + signal.SIGTERM, f"groupwise: stopped by SIGTERM; {kept}")
    (first,) = Path("pipeline/stages/kept/samples").glob("*.parquet")
    written = first.stat().st_mtime_ns
    (tmp_path / "again").touch()
    assert groupwise(*command).code == 0
    assert first.stat().st_mtime_ns == written
    assert len([*first.parent.iterdir()]) == 2
    assert len(Path("pipeline/stages/kept/data.jsonl").read_text().splitlines()) == 4


def test_of_a_rehearsal_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(recipe: Any) -> Any:
        if recipe:
            raise Stopped(signal.SIGHUP)
        return SimpleNamespace(finished=False)  # Ctrl-C

    monkeypatch.setattr(rehearsal, "train", train)
    with pytest.raises(Stopped) as stopped:
        rehearsal._train("recipe")  # type: ignore[arg-type]
    assert stopped.value.sentence == f"stopped by SIGHUP; {NOTHING}"
    with pytest.raises(KeyboardInterrupt):
        rehearsal._train("")  # type: ignore[arg-type]
