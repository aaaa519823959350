"""No process outlives those who need it: the keeper ends a whole group, however its owner or its first process ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from groupwise.errors import EngineError
from groupwise.models.policy import Policy
from groupwise.rollout.vllm import keeper, launch
from groupwise.rollout.vllm.config import VllmConfig
from groupwise.rollout.vllm.launch import Launched, launched

SERVER = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(f"{os.getpid()} {worker.pid}")
time.sleep(60)
"""


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def soon(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.02)
    return holds()


def started(file: Path, *below: str) -> tuple["subprocess.Popen[bytes]", list[int]]:
    """A keeper, or a program that starts it, and the processes of what it keeps: a server and its worker."""
    command = [*below, sys.executable, keeper.__file__, sys.executable, "-c", SERVER, str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert soon(lambda: file.exists() and len(file.read_text().split()) == 2)
    return process, [int(pid) for pid in file.read_text().split()]


def test_all_end_when_the_owner_closes_the_pipe(tmp_path: Path) -> None:
    process, kept = started(tmp_path / "pids")
    assert all(map(lives, kept))
    process.stdin.close()
    process.wait(keeper.GRACE_S - 1)  # asked politely, they end at once
    assert soon(lambda: not any(map(lives, kept)))  # what is killed dies when it next gets a core


def test_a_killed_server_leaves_no_orphans(tmp_path: Path) -> None:
    process, (server, worker) = started(tmp_path / "pids")
    os.kill(server, signal.SIGKILL)
    process.wait(20)
    process.stdin.close()
    assert soon(lambda: not lives(worker))


def test_all_end_when_the_owner_is_killed(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=-1).wait()"
    owner, kept = started(tmp_path / "pids", sys.executable, "-c", program)
    owner.kill()
    owner.communicate()
    assert soon(lambda: not any(map(lives, kept)))


def test_a_server_that_ends_at_once_is_named_with_its_last_words(tmp_path: Path) -> None:
    server = Launched([sys.executable, "-c", "print('no memory left')"], 1, tmp_path / "log", 20.0)
    server.start()
    with pytest.raises(EngineError, match=r"has ended; .*log says last: no memory left"):
        server.wait()
    server.close()


def test_without_the_environment_the_command_that_makes_it_is_named(trained: Policy, tmp_path: Path) -> None:
    config = VllmConfig(kind="vllm", launch=1, environment=str(tmp_path))
    with pytest.raises(EngineError, match=r"no virtual environment .* `make vllm` makes"):
        launched(config, trained, {})


def test_what_was_not_started_here_is_not_started_again() -> None:
    assert not launch.restart("http://127.0.0.1:1")
