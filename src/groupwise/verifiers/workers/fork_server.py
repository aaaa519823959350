"""The parent's side of a fork server: starts it as a fresh interpreter, asks it for workers, and ends them.

The server is never forked from this process, which may be a trainer full of threads, and never imports its script.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import IO, Any

from groupwise.verifiers.workers._worker import ANSWER, END, FORK, HEADER, ORDER, encode

START_S = 120.0
"""Seconds the server may take to import its libraries, which is not part of a request's deadline."""
_ANSWER_S = 20.0


class ExpiredError(Exception):
    """The deadline passed."""


class DiedError(Exception):
    """The process ended without an answer; says how, and what it printed last."""


class ForkServer:
    """One server process; its methods may be called from many threads.

    Raises:
        DiedError: the function cannot be imported.
        ExpiredError: importing it took longer than START_S.
    """

    def __init__(self, target: str, memory_bytes: int, inherit: bool = False) -> None:
        self._lock = threading.Lock()
        self._control, child_end = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "groupwise.verifiers.workers._worker", target, str(memory_bytes)],
                stdin=child_end.fileno(),
                stdout=self._output,
                stderr=self._output,
                env={**(os.environ if inherit else {}), **_environment()},
                start_new_session=True,  # an interrupt from the keyboard is the parent's business
            )
        self._finalizer = weakref.finalize(self, _stop, self._process, self._control, self._output, os.getpid())
        try:
            read(self._control, ANSWER.size, time.monotonic() + START_S)
        except DiedError:
            epitaph = _epitaph(self._process.wait(), self._output)
            self.close()
            raise DiedError(epitaph) from None
        except ExpiredError:
            self.close()
            raise

    def fork(self) -> "Worker":
        """A new worker."""
        parent_end, child_end = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        with child_end:
            try:
                pid = self._order(FORK, 0, [child_end.fileno(), output.fileno()])
                if pid <= 0:  # a signal to it would go to a whole group of processes
                    raise DiedError(f"the fork server says that its worker is process {pid}")
            except BaseException:
                _close(parent_end, output)
                raise
        return Worker(self, pid, parent_end, output)

    def end(self, pid: int) -> int:
        """Kill a worker and wait for it; its exit code, even if it had ended before."""
        return self._order(END, pid, [])

    def close(self) -> None:
        """End the server and with it the workers."""
        self._finalizer()

    def _order(self, action: bytes, pid: int, descriptors: list[int]) -> int:
        with self._lock:
            try:
                socket.send_fds(self._control, [ORDER.pack(action, pid)], descriptors)
                return int(ANSWER.unpack(read(self._control, ANSWER.size, time.monotonic() + _ANSWER_S))[0])
            except OSError:
                raise DiedError("the fork server has ended") from None
            except BaseException:  # an answer that nobody waited for would be taken for the answer to the next order
                self._control.close()
                raise


class Worker:
    """One process. After any failure it is killed and must not be used again."""

    def __init__(self, server: ForkServer, pid: int, channel: socket.socket, output: IO[bytes]) -> None:
        self._server, self._pid, self._channel, self._output = server, pid, channel, output
        self._finalizer = weakref.finalize(self, _close, channel, output)  # at its channel's end the worker ends

    def ask(self, request: Any, timeout_s: float) -> Any:
        """The worker's message.

        Raises:
            ExpiredError: none came in time.
            DiedError: the worker ended.
        """
        deadline = time.monotonic() + timeout_s
        try:
            self._channel.settimeout(timeout_s)
            self._channel.sendall(encode({"timeout_s": timeout_s, "request": request}))
            size = HEADER.unpack(read(self._channel, HEADER.size, deadline))[0]
            return json.loads(read(self._channel, size, deadline))
        except (ExpiredError, TimeoutError):
            with contextlib.suppress(ProcessLookupError):  # at once, and even if the server has died
                os.kill(self._pid, signal.SIGKILL)
            raise ExpiredError from None
        except (DiedError, OSError):
            raise DiedError(_epitaph(self._server.end(self._pid), self._output)) from None

    def kill(self) -> None:
        """End the process at once and wait for it."""
        with contextlib.suppress(DiedError, ExpiredError):  # the server is gone, and its workers with it
            self._server.end(self._pid)
        self._finalizer()


def read(channel: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes from a socket; raises ExpiredError at the deadline (monotonic seconds), DiedError at its end."""
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while len(data) < size:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise ExpiredError
            chunk = _receive(channel, size - len(data))
            if not chunk:
                raise DiedError("the process has ended")
            data += chunk
    return data


def _receive(channel: socket.socket, size: int) -> bytes:
    try:
        return channel.recv(size)
    except ConnectionError:
        return b""


def _epitaph(code: int, output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - 300))
    words = " ".join(output.read().decode(errors="replace").split())
    ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    if code == -signal.SIGKILL:  # nobody can tell
        ending += " (from outside, or because it closed its pipe)"
    return f"the worker ended with {ending}{': ...' + words if words else ''}"


def _environment() -> dict[str, str]:
    """What a server needs and no more; the fixed hash seed makes SymPy's orderings, hence verdicts, repeatable."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


def _close(*resources: socket.socket | IO[bytes]) -> None:
    for resource in resources:
        resource.close()


def _stop(process: "subprocess.Popen[bytes]", control: socket.socket, output: IO[bytes], owner: int) -> None:
    _close(control, output)
    if os.getpid() != owner:  # a process forked from the owner holds a copy that is not its to end
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2.0)
    process.kill()
    process.wait()
