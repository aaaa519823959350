"""Programs in the default tier: what they can do, how they end, and what is kept from one to the next."""

import signal
import time
from collections.abc import Callable

import pytest

from groupwise.errors import SandboxError
from groupwise.sandbox import local
from groupwise.sandbox.base import Program, Sandbox, SandboxConfig, Status
from groupwise.sandbox.bubblewrap import BubblewrapSandbox
from groupwise.sandbox.fork_server import ForkServer
from groupwise.sandbox.local import LocalSandbox

Opened = Callable[..., Sandbox]


def test_input_files_and_output(sandbox: Sandbox) -> None:
    source = "import sys\nprint(input() + open('a.txt').read())\nprint('e', file=sys.stderr)"
    result = sandbox.run(Program(source, stdin=b"x", files={"a.txt": b"y\n"}))
    assert (result.status, result.exit_code, result.stdout, result.stderr) == (Status.EXITED, 0, b"xy\n\n", b"e\n")
    assert 0 < result.seconds < 10


@pytest.mark.parametrize(
    ("source", "code"),
    [("", 0), ("exit(3)", 3), ("import sys; sys.exit(None)", 0), ("raise SystemExit('no')", 1), ("1/0", 1), ("(", 1),
     ("import os; os._exit(7)", 7), ("import atexit, os; atexit.register(os._exit, 5)", 5), ("\0", 1),
     ("import threading; threading.Thread(target=print, args=('t',)).start()", 0)],
)  # fmt: skip
def test_exit_status(sandbox: Sandbox, source: str, code: int) -> None:
    result = sandbox.run(Program(source))
    assert (result.status, result.exit_code) == (Status.EXITED, code), result


@pytest.mark.parametrize(
    "source",
    ["real = sys.stdout\nsys.stdout = io.StringIO()\nprint(input())\nreal.write(sys.stdout.getvalue())",
     "sys.stdout = io.StringIO()\natexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))\nprint(input())",
     "for s in 'stdout', 'stderr': setattr(sys, s, io.TextIOWrapper(vars(sys)[s].buffer))\nprint(input())",
     "out = open(1, 'w')\nout.write(input() + '\\n')",
     "sys.stdin = open('/dev/stdin')\nprint(input())\nprint(*open(0), end='')",
     "class A: read = open\nprint(A().read('/dev/stdin').read())",
     "print(pathlib.Path('/dev/stdin').read_text(), file=open('/dev/stdout', 'w'))"],
)  # fmt: skip
def test_standard_streams_are_those_of_an_interpreter(sandbox: Sandbox, source: str) -> None:
    result = sandbox.run(Program(f"import atexit, io, pathlib, sys\n{source}", stdin=b"12"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"12\n", b"")


@pytest.mark.parametrize(
    ("source", "status", "code", "evidence"),
    [("while True: pass", Status.SIGNALLED, -signal.SIGXCPU, "processor time"),
     ("print('x' * 10**7)", Status.FLOODED, None, "256 KiB"),
     ("import sys\nwhile 1: sys.stderr.write('x' * 9999)", Status.FLOODED, None, "256 KiB"),
     ("import os; os.abort()", Status.SIGNALLED, -signal.SIGABRT, "Aborted"),
     ("import ctypes; ctypes.string_at(0)", Status.SIGNALLED, -signal.SIGSEGV, "Segmentation")],
)  # fmt: skip
def test_ends_that_are_no_exit(sandbox: Sandbox, source: str, status: Status, code: int | None, evidence: str) -> None:
    result = sandbox.run(Program(source, wall_s=100))
    assert (result.status, result.exit_code) == (status, code), result
    assert evidence in result.evidence
    assert len(result.stdout) <= 256 << 10
    assert sandbox.run(Program("print(1)")).stdout == b"1\n"


def test_limits_of_ones_own(sandbox: Sandbox) -> None:
    for source in ("import time; time.sleep(60)", "import os; os.kill(os.getpid(), 19)"):
        start = time.monotonic()
        result = sandbox.run(Program(source, wall_s=0.2))
        assert (result.status, result.evidence) == (Status.TIMEOUT, "it did not end within 0.2 s")
        assert time.monotonic() - start < 9
    hungry = "x = bytearray(200 << 20)\nprint(len(x))"
    assert sandbox.run(Program(hungry, cpu_s=10)).exit_code == 0
    assert b"MemoryError" in sandbox.run(Program(hungry, cpu_s=10, memory_mb=128)).stderr


def test_a_run_finds_nothing_of_the_one_before(opened: Opened) -> None:
    sandbox = opened(num_workers=1)
    sandbox.run(Program("import builtins\nbuiltins.left = 'canary-1234'\nopen('left', 'w').write('x')"))
    seek = """
import builtins, gc, os
gc.unfreeze()
sought = "canary-" + str(1234)
held = [text for thing in gc.get_objects() for text in gc.get_referents(thing) if type(text) is str]
found = [text for text in held if sought in text and text is not sought]
print(os.listdir("."), hasattr(builtins, "left"), found, len(held) > 1000)
"""
    assert sandbox.run(Program(seek)).stdout == b"[] False [] True\n"


def test_remains_cost_the_server_and_nothing_else(opened: Opened) -> None:
    sandbox = opened(num_workers=1)
    assert sandbox.run(Program("import os; os.makedirs('a/b'); open('a/b/c', 'w')")).status is Status.EXITED
    assert sandbox.run(Program("import os; print(os.listdir('.'))")).stdout == b"[]\n"


def test_a_server_is_replaced_after_its_runs(bubblewrap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[LocalSandbox] = []
    start = LocalSandbox.start_server

    def count(self: LocalSandbox) -> ForkServer:
        starts.append(self)
        return start(self)

    monkeypatch.setattr(local, "RUNS_PER_SERVER", 10)
    monkeypatch.setattr(LocalSandbox, "start_server", count)
    with BubblewrapSandbox(SandboxConfig(num_workers=1)) as sandbox:
        sandbox.run_many([Program("")] * 25)
    assert len(starts) == 3


def test_a_server_that_dies_is_replaced_once_then_the_run_has_failed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = opened(num_workers=1)
    report = ForkServer.report
    left = [1]
    monkeypatch.setattr(ForkServer, "report", lambda self: left.pop() and None if left else report(self))
    assert sandbox.run(Program("print(1)")).stdout == b"1\n"
    monkeypatch.setattr(ForkServer, "report", lambda self: None)
    assert sandbox.run(Program("print(1)")).status is Status.FAILED
    monkeypatch.undo()
    assert sandbox.run(Program("print(1)")).stdout == b"1\n"


def test_results_are_in_order(sandbox: Sandbox) -> None:
    results = sandbox.run_many([Program(f"print({number})") for number in range(40)])
    assert [int(result.stdout) for result in results] == list(range(40))


def test_a_pair_talks_and_its_parts_are_apart(sandbox: Sandbox) -> None:
    tester = "import sys\nprint('ping', flush=True)\nsys.stderr.write(input())\nopen('/tmp/t', 'w')"
    solver = "import os\nprint(input(), os.listdir('/tmp'), flush=True)\nimport time; time.sleep(60)"
    start = time.monotonic()
    asked, answered = sandbox.run_all([(Program(tester), Program(solver))])[0]
    assert (asked.status, asked.stderr) == (Status.EXITED, b"ping []")
    assert answered.status is Status.TIMEOUT
    assert time.monotonic() - start < 9, "a solver must not outlive its tester for long"


def test_a_solver_that_is_gone_is_an_end_of_file(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_GRACE_S", 20.0)  # its end is seen some milliseconds after its tester's
    tester = "import sys\nsys.stderr.write(repr(sys.stdin.read()))"
    asked, answered = sandbox.run_all([(Program(tester), Program("print('bye')\nexit(4)"))])[0]
    assert (asked.stderr, answered.exit_code) == (b"'bye\\n'", 4)


def test_commands_of_the_host(sandbox: Sandbox) -> None:
    result = sandbox.run(Program(command=("wc", "-c", "a.txt"), files={"a.txt": b"12345"}, wall_s=9))
    assert (result.status, result.stdout.split()) == (Status.EXITED, [b"5", b"a.txt"])
    failed = sandbox.run(Program(command=("sh", "-c", "cat; echo no >&2; exit 3"), stdin=b"in", wall_s=9))
    assert (failed.exit_code, failed.stdout, failed.stderr) == (3, b"in", b"no\n")
    killed = sandbox.run(Program(command=("sh", "-c", "kill -9 $$"), wall_s=9))
    assert (killed.status, killed.exit_code) == (Status.SIGNALLED, -9)


@pytest.mark.parametrize(
    ("script", "wall_s", "status"),
    [("sleep 60", 1, Status.TIMEOUT), ("exec >&- 2>&-; sleep 60", 1, Status.TIMEOUT), ("yes", 30, Status.FLOODED),
     ("(setsid sleep 60 &) ; exit 0", 30, Status.EXITED)],
)  # fmt: skip
def test_commands_are_ended(sandbox: Sandbox, script: str, wall_s: float, status: Status) -> None:
    start = time.monotonic()
    assert sandbox.run(Program(command=("sh", "-c", script), wall_s=wall_s)).status is status
    assert time.monotonic() - start < 50


@pytest.mark.parametrize(
    "script",
    ["cat /etc/passwd", "ls /root /home", "cat /proc/1/environ", "touch /usr/x", "touch /x",
     "unshare -U true", "head -c 99000000 /dev/zero > /tmp/x", "env | grep -v -e ^PATH= -e ^LC_ALL= -e ^PWD="],
)  # fmt: skip
def test_commands_are_confined(sandbox: Sandbox, script: str) -> None:
    assert sandbox.run(Program(command=("sh", "-c", script), wall_s=9)).exit_code != 0


def test_a_command_must_be_there(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no program 'no-such-prover'"):
        sandbox.run(Program(command=("no-such-prover",)))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "", "..", "a/b"])
def test_files_have_plain_names(name: str) -> None:
    with pytest.raises(ValueError, match="plain name"):
        Program("", files={name: b""})


def test_a_closed_sandbox_starts_anew(opened: Opened) -> None:
    sandbox = opened()
    sandbox.close()
    assert sandbox.run(Program("print(1)")).stdout == b"1\n"
