"""Programs of the host's /usr over files, each in a bubblewrap of its own with the same confinement and limits."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, RunResult, SandboxConfig, Status
from groupwise.sandbox.bubblewrap import command_line
from groupwise.sandbox.host import launcher, machine, make_cgroups, remove_cgroups
from groupwise.sandbox.seccomp import sandbox_filter
from groupwise.sandbox.streams import Outputs, memory_file, pipe, watch
from groupwise.sandbox.supervision import read_exit_code

_PATH = "/usr/local/bin:/usr/bin"
_SHELL_SIGNAL = 128
"""bubblewrap reports a signal as this plus its number."""
_END_S = 2.0


def run_command(program: Program, config: SandboxConfig) -> RunResult:
    """Run it; a control group, where one can be had, bounds its processes together.

    Raises:
        SandboxError: there is no such program.
    """
    command = [*_limits(program, config), _find(program.command[0]), *program.command[1:]]
    groups = make_cgroups(program.memory_mb or config.memory_mb, config.max_processes + 4)
    try:
        with ExitStack() as ours:
            return _run(command, program, config, launcher(groups), ours)
    finally:
        remove_cgroups(groups)


def _run(
    command: Sequence[str], program: Program, config: SandboxConfig, launch: Sequence[str], ours: ExitStack
) -> RunResult:
    outputs, start = Outputs(config.output_kb), time.monotonic()
    wall_s = program.wall_s or config.wall_s
    told, tell = ours.enter_context(pipe())
    with ExitStack() as theirs:
        stdin, rules, *copies = (
            theirs.enter_context(memory_file(content))
            for content in (program.stdin, sandbox_filter(machine()), *program.files.values())
        )
        files = dict(zip(program.files, copies, strict=True))
        process = subprocess.Popen(
            [*launch, *command_line(config, rules, tell, files, command)],
            stdin=stdin,
            stdout=outputs.open_stdout(ours, theirs),
            stderr=outputs.open_stderr(ours, theirs),
            pass_fds=[rules, tell, *copies],
            env={},
            start_new_session=True,
        )
    watch(outputs.readers, lambda: start + wall_s, lambda: outputs.is_flooded)
    in_time = not outputs.is_flooded and _ends(process, start + wall_s - time.monotonic())
    report = _read_report(told)
    if not in_time:
        _kill(process, report.get("child-pid"))
    status, exit_code, evidence = _describe_end(outputs, report, in_time, wall_s)
    return RunResult(status, exit_code, outputs.stdout, outputs.stderr, time.monotonic() - start, evidence)


def _describe_end(
    outputs: Outputs, report: dict[str, int], in_time: bool, wall_s: float
) -> tuple[Status, int | None, str]:
    if outputs.is_flooded:
        return Status.FLOODED, None, "it wrote more than is read"
    if not in_time:
        return Status.TIMEOUT, None, f"it did not end within {wall_s:g} s"
    if "exit-code" not in report:
        return Status.FAILED, None, outputs.stderr.decode(errors="replace")[-400:]
    code = report["exit-code"]
    return read_exit_code(code if code <= _SHELL_SIGNAL else _SHELL_SIGNAL - code)


def _limits(program: Program, config: SandboxConfig) -> list[str]:
    cpu_s, memory = program.cpu_s or config.cpu_s, (program.memory_mb or config.memory_mb) << 20
    return [
        "/usr/bin/prlimit", f"--cpu={cpu_s}:{cpu_s + 1}", f"--as={memory}", f"--fsize={config.files_mb << 20}",
        f"--nproc={config.max_processes}", "--core=0", "--nofile=256", "--memlock=0", "--msgqueue=0", "--",
    ]  # fmt: skip


def _find(name: str) -> str:
    path = shutil.which(name, path=_PATH)
    if path is None:
        raise SandboxError(f"there is no program {name!r} in {_PATH}; install it")
    return path


def _ends(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def _read_report(descriptor: int) -> dict[str, int]:
    """What bubblewrap has said so far: JSON objects, one a line."""
    os.set_blocking(descriptor, False)
    report: dict[str, Any] = {}
    with contextlib.suppress(BlockingIOError):
        for line in os.read(descriptor, 1 << 16).splitlines():
            report |= json.loads(line)
    return report


def _kill(process: "subprocess.Popen[bytes]", first: int | None) -> None:
    """Kill process 1 of the sandbox, hence all of it, and let bubblewrap reap it; else bubblewrap too."""
    with contextlib.suppress(ProcessLookupError):
        if first is not None:
            os.kill(first, signal.SIGKILL)
    if first is None or not _ends(process, _END_S):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
