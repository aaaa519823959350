"""Nothing is left behind by hostile programs: no process, no file, no shared memory, no control group."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from groupwise.sandbox.base import Program, SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.sandbox.zygote import ENDING
from groupwise.verifiers.workers import WorkerPool

MARK = "groupwise-remains-7919"
SEGMENT = 7_919_000
HOSTILE = [
    "import os\nwhile True: os.fork()",
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(600)",
    f"import os\nos.makedirs('/tmp/{MARK}/a/b'); open('/tmp/{MARK}/a/x', 'w').write('x')",
    f"for place in ('/dev/shm', '/var/tmp', '/tmp', '/'):\n  try: open(place + '/{MARK}', 'w')\n  except OSError: pass",
    f"import ctypes\nl = ctypes.CDLL(None); l.shmget(0, {SEGMENT}, 0o1666); l.mq_open(b'/{MARK}', 0o102, 0o666, None)",
    "import signal, time\nfor n in range(1, 32):\n  try: signal.signal(n, signal.SIG_IGN)\n  except OSError: pass\n"
    "time.sleep(600)",
    "import threading, time\nfor _ in range(99): threading.Thread(target=time.sleep, args=(600,)).start()",
    "x = []\nwhile True: x.append(bytearray(10**7))",
    "import os\nwhile True: os.write(1, b'x' * 65536)",
    "import os\nos.close(0); os.close(1); os.close(2)\nos.kill(os.getpid(), 9)",
    "import ctypes; ctypes.string_at(0)",
    "import os\nfor n in range(3000): open(str(n), 'w')",
]


def descendants(root: int) -> set[int]:
    """All processes below one, by the kernel's list."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {root}} - found:
        found |= more
    return found


def remains() -> list[str]:
    """Traces by their name or size, wherever they could be."""
    places = [Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path("/"), Path.cwd()]
    files = [str(path) for place in places for path in place.glob(f"{MARK}*")]
    segments = [line for line in Path("/proc/sysvipc/shm").read_text().splitlines() if str(SEGMENT) in line.split()]
    return files + segments + control_groups(os.getpid())


def control_groups(pid: int) -> list[str]:
    """Those of a process's sandboxes; others come and go meanwhile, which os.walk bears."""
    mark = f"groupwise-{pid}-"
    return [f"{place}/{name}" for place, names, _ in os.walk("/sys/fs/cgroup") for name in names if mark in name]


def left_after(before: set[int]) -> set[int]:
    """Processes below this one that were not there before and do not end within 20 s; the dead are buried."""
    deadline = time.monotonic() + 20
    while (left := descendants(os.getpid()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return left


@pytest.fixture
def adopter() -> Iterator[None]:
    """Processes whose parents are gone become this process's children (PR_SET_CHILD_SUBREAPER), so they are seen."""
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)
    yield
    libc.prctl(36, 0, 0, 0, 0)


def run_hostile(count: int, wall_s: float) -> None:
    before, remained = descendants(os.getpid()), remains()
    with open_sandbox(SandboxConfig(cpu_s=1)) as sandbox:
        sandbox.run_many([Program(HOSTILE[number % len(HOSTILE)], wall_s=wall_s) for number in range(count)])
        sandbox.run_many([Program(command=("sh", "-c", "(setsid sleep 600 &); sleep 600"), wall_s=wall_s)])
        assert sandbox.run(Program("import os; print(os.listdir('.'))", wall_s=9)).stdout == b"[]\n"
    assert left_after(before) == set()
    assert set(remains()) <= set(remained)


def test_nothing_is_left_behind(bubblewrap: None, adopter: None) -> None:
    run_hostile(len(HOSTILE), 0.3)


@pytest.mark.slow
def test_nothing_is_left_behind_by_a_thousand(bubblewrap: None, adopter: None) -> None:
    run_hostile(1000, 0.3)


def test_a_signal_to_every_process_of_a_job_ends_no_program(bubblewrap: None) -> None:
    before, pool = descendants(os.getpid()), WorkerPool("time:sleep")
    with open_sandbox(SandboxConfig()) as sandbox, contextlib.closing(pool), ThreadPoolExecutor(2) as threads:
        runs = threads.submit(
            sandbox.run_many, [Program("import time; time.sleep(1)"), Program(command=("sleep", "1"))]
        )
        reply = threads.submit(pool.call, 1, 60.0)
        while not (runs.done() and reply.done()):
            for pid, number in product(descendants(os.getpid()) - before, ENDING):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.01)
    assert [result.exit_code for result in runs.result()] == [0, 0]
    assert reply.result().status == "ok"


def test_nothing_outlives_a_parent_that_is_killed(bubblewrap: None, adopter: None) -> None:
    source = """
from groupwise.sandbox.base import Program
from groupwise.sandbox.opening import open_sandbox
sandbox = open_sandbox()
print("open", flush=True)
sandbox.run_many([Program("import time; time.sleep(600)", wall_s=600)] * 2)
"""
    before = descendants(os.getpid())
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"open\n"
        deadline = time.monotonic() + 20
        while len(descendants(parent.pid)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(descendants(parent.pid)) >= 4
        parent.kill()
    assert left_after(before) == set()
    with open_sandbox(SandboxConfig(num_workers=1)):  # which tidies up after the dead
        assert control_groups(parent.pid) == []
