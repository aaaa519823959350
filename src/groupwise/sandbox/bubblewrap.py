"""Tier `bubblewrap`: all namespaces new, an empty environment, /usr read-only, one small writable /tmp.

There is no /proc, no device beyond null, zero and urandom, no program of the host but the interpreter or, for commands,
those of /usr. Nothing is shared with other sandboxes.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from groupwise.errors import SandboxError
from groupwise.sandbox import host
from groupwise.sandbox.base import FILES_MB, Limits, Program, RunResult, Status
from groupwise.sandbox.fork_server import undisturbed
from groupwise.sandbox.local import LocalSandbox, Outputs, memory_file, pipe, read_exit_code, watch
from groupwise.sandbox.seccomp import run_filter, sandbox_filter

_PYTHON_HOME = "/opt/python"
_PATH = "/usr/local/bin:/usr/bin"
_SHELL_SIGNAL = 128  # bubblewrap reports a signal as this plus its number
_END_S = 2.0


class BubblewrapSandbox(LocalSandbox):
    """Fork servers, and programs of the host's /usr, each in a separate bubblewrap; for the superuser and others."""

    advice: ClassVar[str] = (
        "allow user namespaces (in a container by its seccomp or AppArmor profile, on Ubuntu by sysctl "
        'kernel.apparmor_restrict_unprivileged_userns=0), or set sandbox.tier = "landlock", which is weaker'
    )

    def server_command(self, filter_fd: int) -> list[str]:
        program, prefix = host.reachable_interpreter()
        if host.interpreter()[1] == Path("/usr"):
            python, binds = str(program), ["--ro-bind", str(program), str(program)]
        else:
            python = f"{_PYTHON_HOME}/bin/{program.name}"
            binds = ["--ro-bind", f"{prefix}/lib", f"{_PYTHON_HOME}/lib", "--ro-bind", str(program), python]
        boot = {"run_filter": run_filter(host.machine()).hex(), "directory": "/tmp"}
        return [
            *_base(filter_fd), *_libraries(["/usr/lib", "/usr/lib64"]), *binds,
            *_end(host.zygote_environment(_PYTHON_HOME)), "--as-pid-1", "--", *host.zygote_command(python, boot),
        ]  # fmt: skip

    def run_command(self, program: Program) -> RunResult:
        """Run a program of the host's /usr (SandboxError: not there), in a control group where this host allows one."""
        name, *arguments = program.command
        if (path := shutil.which(name, path=_PATH)) is None:
            raise SandboxError(f"there is no program {name!r} in {_PATH}; install it")
        limits = program.limits(self.config)
        command = [
            "/usr/bin/prlimit", f"--cpu={limits.cpu_s}:{limits.cpu_s + 1}", f"--as={limits.memory_mb << 20}",
            f"--fsize={limits.files_mb << 20}", f"--nproc={limits.max_processes}", "--core=0", "--nofile=256",
            "--memlock=0", "--msgqueue=0", "--", path, *arguments,
        ]  # fmt: skip
        groups = host.make_cgroups(limits.memory_mb)
        with ExitStack() as ours:
            ours.callback(host.remove_cgroups, groups)
            return _run(command, program, limits, host.launcher(groups), ours)


def _run(command: Sequence[str], program: Program, limits: Limits, launch: Sequence[str], ours: ExitStack) -> RunResult:
    outputs = Outputs(program.output_kb)
    deadline = outputs.start + limits.wall_s
    status_read, status_write = ours.enter_context(pipe())
    with ExitStack() as theirs:
        stdin, rules, *copies = (
            theirs.enter_context(memory_file(content))
            for content in (program.stdin, sandbox_filter(host.machine()), *program.files.values())
        )
        files = dict(zip(program.files, copies, strict=True))
        theirs.enter_context(undisturbed())
        process = subprocess.Popen(
            [*launch, *command_line(rules, status_write, files, command)],
            stdin=stdin,
            stdout=outputs.open(ours, theirs, error=False),
            stderr=outputs.open(ours, theirs, error=True),
            pass_fds=[rules, status_write, *copies],
            env={},
            start_new_session=True,
        )
    watch(outputs.readers, lambda: deadline, lambda: outputs.is_flooded)
    in_time = not outputs.is_flooded and _ends(process, deadline - time.monotonic())
    report: dict[str, Any] = {}
    os.set_blocking(status_read, False)
    with contextlib.suppress(BlockingIOError):
        for line in os.read(status_read, 1 << 16).splitlines():
            report |= json.loads(line)
    if not in_time:  # process 1 of the sandbox is killed, hence all of it, and bubblewrap reaps it; else bubblewrap too
        first = report.get("child-pid")
        with contextlib.suppress(ProcessLookupError):
            if first is not None:
                os.kill(first, signal.SIGKILL)
        if first is None or not _ends(process, _END_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if outputs.is_flooded:
        return outputs.result(Status.FLOODED, None, "it wrote more than is read")
    if not in_time:
        return outputs.result(Status.TIMEOUT, None, f"it did not end within {limits.wall_s:g} s")
    if "exit-code" not in report:
        return outputs.result(Status.FAILED, None, outputs.stderr.decode(errors="replace")[-400:])
    code = report["exit-code"]
    return outputs.result(*read_exit_code(code if code <= _SHELL_SIGNAL else _SHELL_SIGNAL - code))


def _ends(process: "subprocess.Popen[bytes]", seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, seconds))
    return process.returncode is not None


def command_line(filter_fd: int, status_fd: int, files: Mapping[str, int], command: Sequence[str]) -> list[str]:
    """Return the command of bubblewrap with a program of /usr; descriptors hold its files and take its status."""
    copies = [part for name, fd in files.items() for part in ("--file", str(fd), f"/tmp/{name}")]
    alternatives = ["--ro-bind-try", "/etc/alternatives", "/etc/alternatives"]
    return [
        *_base(filter_fd), *_libraries(["/usr"]), "--symlink", "usr/bin", "/bin", *alternatives, *copies,
        *_end({"PATH": _PATH, "LC_ALL": "C.UTF-8"}),
        "--die-with-parent", "--json-status-fd", str(status_fd), "--", *command,
    ]  # fmt: skip


def _base(filter_fd: int) -> list[str]:
    if (path := shutil.which("bwrap")) is None:
        raise SandboxError(
            "the sandbox needs bubblewrap, which is not installed: `apt-get install bubblewrap` (or set "
            'sandbox.tier = "landlock", which is weaker, or "remote")'
        )
    devices = [part for name in ("null", "zero", "urandom") for part in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")]
    return [
        path, "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL",
        "--hostname", "sandbox", "--clearenv", "--seccomp", str(filter_fd), *devices,
        "--size", str(FILES_MB << 20), "--tmpfs", "/tmp", "--chdir", "/tmp",
    ]  # fmt: skip


def _libraries(readable: Sequence[str]) -> list[str]:
    binds = [part for path in readable for part in ("--ro-bind-try", path, path)]
    for path in ("/lib", "/lib64"):
        binds += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind-try", path, path]
    return [*binds, "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]


def _end(environment: Mapping[str, str]) -> list[str]:
    sets = [part for name, value in environment.items() for part in ("--setenv", name, value)]
    return [*sets, "--remount-ro", "/"]
