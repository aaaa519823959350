"""Tier `landlock`: only by name, and it holds too."""

import platform
from collections.abc import Iterator

import pytest

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.sandbox.zygote import landlock_version


@pytest.fixture(scope="module")
def landlock() -> Iterator[Sandbox]:
    if landlock_version() == 0:
        pytest.skip(f"Linux {platform.release()} here has no landlock")
    with open_sandbox(SandboxConfig(tier="landlock", cpu_s=1)) as sandbox:
        yield sandbox


def test_programs_run(landlock: Sandbox) -> None:
    assert landlock.run(Program("print(input()[::-1])", stdin=b"abc")).stdout == b"cba\n"
    asked, _ = landlock.run_all([
        (Program("import sys\nprint(1, flush=True)\nsys.stderr.write(input())"), Program("print(input() * 3)"))
    ])[0]  # fmt: skip
    assert asked.stderr == b"111"


@pytest.mark.parametrize(
    "source",
    ["open('/etc/passwd')", "open('/tmp/x', 'w')", "import os; os.listdir('/')", "import os; os.kill(os.getppid(), 0)",
     "import os; os.chmod('/tmp', 0o777)", "import os; os.truncate('/tmp', 0)", "import socket; socket.socket()",
     "import os; os.fork()", "import os; os.setsid()", "import threading; threading.Thread(target=print).start()",
     "import os; os.execv('/bin/true', ['true'])", "import resource as r; r.prlimit(1, r.RLIMIT_CPU)"],
)  # fmt: skip
def test_what_is_refused(landlock: Sandbox, source: str) -> None:
    result = landlock.run(Program(source))
    assert (result.status, result.exit_code) == (Status.EXITED, 1), result


def test_a_program_past_its_deadline_is_gone(landlock: Sandbox) -> None:
    assert landlock.run(Program("import time; time.sleep(60)", wall_s=0.2)).status is Status.TIMEOUT


def test_files_and_commands_need_the_other_tier(landlock: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no place for files"):
        landlock.run(Program("", files={"a": b""}))
    with pytest.raises(SandboxError, match="Python sources only, not coqc"):
        landlock.run(Program(command=("coqc",)))


def test_a_kernel_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.sandbox.local.landlock_version", lambda: 0)
    with pytest.raises(SandboxError, match=r"no landlock: it needs Linux 5\.13"):
        open_sandbox(SandboxConfig(tier="landlock"))
