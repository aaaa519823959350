"""No sandbox is opened that does not hold, and every error says what to do."""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError, SandboxError
from groupwise.sandbox import local, opening
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig
from groupwise.sandbox.opening import check, open_sandbox

ALLOW_ALL = b"\x06\x00\x00\x00\x00\x00\xff\x7f"


class Leaky(Sandbox):
    """A sandbox of which one program is told that it got through."""

    def __init__(self, sandbox: Sandbox, program: str) -> None:
        self.config, self._sandbox, self._program = sandbox.config, sandbox, program

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        results = self._sandbox.run_all(runs)
        return [
            [replace(result, stdout=b"not refused: it\n") if self._program in program.source else result]
            for (program,), (result,) in zip(runs, results, strict=True)
        ]


@pytest.mark.parametrize(
    ("program", "name"),
    [("os.fork()", "new processes"), ("socket.socket", "the network"), ("print(sum", "an honest program's answer")],
)
def test_a_leak_is_named(sandbox: Sandbox, program: str, name: str) -> None:
    check(sandbox)
    with pytest.raises(SandboxError, match=f"does not hold, so nothing is run in it: {name}: exited .*not refused"):
        check(Leaky(sandbox, program))


@pytest.mark.parametrize(("part", "refused"), [("sandbox_filter", "the network"), ("run_filter", "signals to others")])
def test_without_its_filters_it_does_not_open(
    bubblewrap: None, monkeypatch: pytest.MonkeyPatch, part: str, refused: str
) -> None:
    place = local if part == "sandbox_filter" else sys.modules["groupwise.sandbox.bubblewrap"]
    monkeypatch.setattr(place, part, lambda machine: ALLOW_ALL)
    # where ptrace is allowed it stops the process that serves it, and nothing but the deadline ends that
    monkeypatch.delitem(opening._PROGRAMS, "privileged system calls")
    with pytest.raises(SandboxError, match=refused):
        open_sandbox(SandboxConfig(wall_s=30))


def test_bubblewrap_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"):
        open_sandbox()


FORBIDDEN_NAMESPACES = """
import platform, sys
from groupwise.errors import SandboxError
from groupwise.sandbox import opening, seccomp, zygote
zygote.refuse_new_privileges()
numbers = seccomp.MACHINES[platform.machine()]
errors = {"unshare": 1, "clone3": 38}
names = [seccomp._if(seccomp._EQUAL, numbers[1][name], seccomp._deny(error)) for name, error in errors.items()]
clone = seccomp._on(numbers[1]["clone"], 0, seccomp._if(seccomp._ANY_BIT, 0x7E020000, seccomp._deny(1)))
zygote.install_filter(seccomp._program(numbers[0], clone, *names))
try:
    opening.open_sandbox()
except SandboxError as error:
    print(error)
"""


def test_namespaces_that_are_forbidden(bubblewrap: None) -> None:
    run = subprocess.run([sys.executable, "-c", FORBIDDEN_NAMESPACES], capture_output=True, text=True, check=True)
    assert "bubblewrap does not start here" in run.stdout, run
    assert "allow user namespaces" in run.stdout
    assert 'sandbox.tier = "landlock"' in run.stdout


def test_a_machine_without_filters(bubblewrap: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SandboxError, match=r"riscv64.*x86_64, aarch64"):
        open_sandbox()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tier": "remote"}, "`url` is needed"), ({"url": "http://x"}, "allowed only there"), ({"tier": "docker"}, "tier"),
     ({"tier": "remote", "url": "file:///etc/passwd"}, "must begin with http"), ({"wall_s": 0}, "wall_s = 0"),
     ({"memory_mb": 16}, "memory_mb = 16")],
)  # fmt: skip
def test_settings_that_cannot_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(SandboxConfig, options)


def test_an_ordinary_user_can_open_one(bubblewrap: None, as_ordinary_user: Callable[[str], str]) -> None:
    text = """
import os
from groupwise.sandbox.base import Program
from groupwise.sandbox.opening import open_sandbox
with open_sandbox() as sandbox:
    print(os.getuid(), sandbox.run(Program("import os; print(os.getuid())")).stdout)
    print(sandbox.run(Program(command=("id", "-u"))).stdout)
"""
    assert os.geteuid() != 0 or as_ordinary_user(text) == "1234 b'65534\\n'\nb'65534\\n'\n"
