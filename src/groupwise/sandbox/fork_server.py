"""A running fork server as its parent sees it: started, handed programs, asked for reports, ended."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, SandboxConfig
from groupwise.sandbox.host import remove_cgroups
from groupwise.sandbox.zygote import REPORT

START_S = 30.0
_END_S = 2.0


class Report(NamedTuple):
    """How a run ended."""

    status: int
    """As `waitpid` gives it."""
    is_clean: bool
    """Whether the run left nothing behind."""


class ForkServer:
    """One sandboxed fork server, started by a command that may read the system call filter from a descriptor.

    Its standard input is the socket by which it is asked. After `end` it must not be used again.

    Raises:
        SandboxError: it does not start, or runs another interpreter than ours.
    """

    def __init__(self, command: Sequence[str], filter_fd: int, groups: Sequence[Path] = ()) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.num_runs = 0
        with theirs:
            process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[filter_fd],
                env={},
                start_new_session=True,
            )
        self._finalizer = weakref.finalize(self, _end, process, self._control, self._errors, tuple(groups))
        self._control.settimeout(START_S)
        self._check_start()

    def _check_start(self) -> None:
        try:
            version = self._control.recv(4096).decode()
        except OSError as error:
            version = str(error)
        if version != sys.version:
            self._errors.seek(0)
            words = " ".join(self._errors.read().decode(errors="replace").split())[-400:]
            self.end()
            raise SandboxError(words or f"the sandbox has {version or 'no answer'} instead of Python {sys.version}")

    def fileno(self) -> int:
        """Becomes readable when the run has ended."""
        return self._control.fileno()

    def begin(self, request: int, stdin: int, stdout: int, stderr: int) -> None:
        """Hand over a program by its descriptors; it has none of the parent's but these."""
        self.num_runs += 1
        with contextlib.suppress(OSError):  # a server that is gone has no report either
            socket.send_fds(self._control, [b"."], [request, stdin, stdout, stderr])

    def report(self) -> Report | None:
        """How the run ended; None when the server is gone."""
        try:
            data = self._control.recv(64)
        except OSError:
            return None
        if len(data) != REPORT.size:
            return None
        status, dirty = REPORT.unpack(data)
        return Report(status, not dirty)

    def end(self) -> None:
        """End the server and with it every process of the sandbox."""
        self._finalizer()


def _end(process: "subprocess.Popen[bytes]", control: socket.socket, errors: IO[bytes], groups: Sequence[Path]) -> None:
    errors.close()
    control.close()  # the order to end, which process 1 obeys at once; bubblewrap then reaps it
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    remove_cgroups(groups)


def encode(program: Program, config: SandboxConfig) -> bytes:
    """A program as the fork server's child reads it."""
    limits = {
        "cpu_s": program.cpu_s or config.cpu_s,
        "memory_mb": min(program.memory_mb or config.memory_mb, config.memory_mb),
        "files_mb": config.files_mb,
        "max_processes": config.max_processes,
    }
    files = {name: content.decode("latin-1") for name, content in program.files.items()}
    return json.dumps({"source": program.source, "files": files, "limits": limits}).encode("ascii")
