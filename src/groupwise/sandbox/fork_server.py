"""The parent's side of a fork server (`zygote.py`): start it, hand it orders, read its answers, end it.

The server is a fresh interpreter, never forked from this process, which may be a trainer full of threads.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from groupwise.errors import SandboxError
from groupwise.sandbox.host import remove_cgroups
from groupwise.sandbox.zygote import ANSWER, END, ENDING, FORK, ORDER, RUN

START_S = 30.0
_ANSWER_S = 20.0
_END_S = 2.0


Report = tuple[int, bool]  # wait status of a run that ended, and true when it left nothing behind


class ForkServer:
    """One server process, started by a command; its standard input is the socket on which it takes orders.

    It either runs programs, one at a time (`begin`, `report`), or forks workers for many threads (`fork`,
    `end_worker`). SandboxError: it does not serve within `start_s` seconds, or runs another interpreter than this one.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        start_s: float = START_S,
        pass_fds: Sequence[int] = (),
        groups: Sequence[Path] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.num_runs = 0
        with theirs, undisturbed():
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=self._output,
                stderr=self._output,
                pass_fds=pass_fds,
                env=environment,
                start_new_session=True,  # an interrupt from the keyboard is the parent's business
            )
        resources = (self._process, self._control, self._output, tuple(groups), os.getpid())
        self._finalizer = weakref.finalize(self, _end, *resources)
        self._control.settimeout(start_s)
        try:
            version = self._control.recv(4096).decode()
        except OSError as error:
            version = str(error)
        if version != sys.version:
            words = last_words(self._output, 400)
            self.end()
            raise SandboxError(words or f"the fork server has {version or 'no answer'} instead of Python {sys.version}")
        self._control.settimeout(_ANSWER_S)

    def fileno(self) -> int:
        return self._control.fileno()

    def begin(self, request: int, stdin: int, stdout: int, stderr: int) -> None:
        self.num_runs += 1
        with contextlib.suppress(OSError):  # a server that is gone has no report either
            socket.send_fds(self._control, [ORDER.pack(RUN, 0)], [request, stdin, stdout, stderr])

    def report(self) -> Report | None:
        """Return how the run ended; None when the server is gone."""
        try:
            status, is_clean = ANSWER.unpack(self._control.recv(64))
            return status, is_clean
        except (OSError, struct.error):
            return None

    def fork(self, channel: int, output: int) -> int:
        pid = self._order(FORK, 0, channel, output)
        if pid <= 0:  # a signal to it would go to a whole group of processes
            raise SandboxError(f"the fork server says that its worker is process {pid}")
        return pid

    def end_worker(self, pid: int) -> int:
        """Kill a worker, which may have ended, and return its exit code (SandboxError: the server has ended)."""
        return os.waitstatus_to_exitcode(self._order(END, pid))

    def _order(self, action: bytes, pid: int, *descriptors: int) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [ORDER.pack(action, pid)], descriptors)
                return int(ANSWER.unpack(self._control.recv(ANSWER.size))[0])
            except BaseException as error:
                self._control.close()  # a late answer would be taken for the answer to the next order
                if isinstance(error, OSError | struct.error):
                    raise SandboxError("the fork server has ended") from None
                raise

    def end(self) -> None:
        self._finalizer()


def _end(
    process: "subprocess.Popen[bytes]", control: socket.socket, output: IO[bytes], groups: Sequence[Path], owner: int
) -> None:
    output.close()
    control.close()  # the order to leave
    if os.getpid() != owner:  # a process forked from the owner holds a copy that is not its to end
        return
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    remove_cgroups(groups)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Start processes which the signals to a whole job do not reach."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def last_words(output: IO[bytes], most: int) -> str:
    """Return the end of a file of printed text, on one line."""
    output.seek(max(0, output.seek(0, os.SEEK_END) - most))
    return " ".join(output.read().decode(errors="replace").split())
