"""A fork server and its workers. The server imports one function, then forks a worker whenever the parent asks.

Run as `python -m groupwise.verifiers.workers._worker package.module:function memory_bytes` with a Unix socket, the
control, as standard input. Orders are `ORDER` structs: `F` with two descriptors (the worker's channel, and a file for
what it prints) forks a worker and answers its process id; `E` ends the worker of that id and answers its exit code,
which is minus the number of a signal. A worker reads requests from its channel and answers them there, one at a time,
until end of file; a frame is four bytes of length (big endian) and that many bytes of JSON.

Where the function's module has a function `warm_up`, it runs once, before the first fork. The server ends with its
parent: the control's end of file, or another parent process, is its order to kill the workers and leave.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

HEADER = struct.Struct(">I")
ORDER = struct.Struct(">cq")
ANSWER = struct.Struct(">q")
FORK, END = b"F", b"E"
READY = 0
_SPARE_CPU_S = 5
_LOOK_AFTER_PARENT_S = 1.0


def encode(message: Any) -> bytes:
    """A message as a frame."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def serve(function: Callable[[Any], Any], requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests `{"timeout_s": float, "request": ...}` until end of file."""
    while len(header := requests.read(HEADER.size)) == HEADER.size:
        message = json.loads(requests.read(HEADER.unpack(header)[0]))
        _allow_cpu(message["timeout_s"])
        replies.write(encode(_attempt(function, message["request"])))
        replies.flush()


def _attempt(function: Callable[[Any], Any], request: Any) -> dict[str, Any]:
    try:
        return {"reply": function(request)}
    except Exception as error:  # reported as CRASHED with this text; the worker lives on
        return {"failed": f"{type(error).__name__}: {error}"[:400]}


def _allow_cpu(seconds: float) -> None:
    """A second bound, in case the parent, which keeps the deadline, is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(usage.ru_utime + usage.ru_stime + seconds + _SPARE_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


class _Server:
    """Forks and ends workers by order."""

    def __init__(self, function: Callable[[Any], Any], control: socket.socket, memory_bytes: int) -> None:
        self._function, self._control, self._memory_bytes = function, control, memory_bytes
        self._parent = os.getppid()
        self._workers: set[int] = set()

    def run(self) -> None:
        """Obey until the parent is gone, then leave nothing behind."""
        try:
            self._control.sendall(ANSWER.pack(READY))
            while self._parent_lives() and self._obey():
                pass
        finally:
            for pid in list(self._workers):
                self._end(pid)

    def _obey(self) -> bool:
        """Do what the next order says; False at the end of file, or where nobody waits for the answer."""
        order, descriptors, _, _ = socket.recv_fds(self._control, ORDER.size, 2)
        if len(order) < ORDER.size:
            return False
        action, pid = ORDER.unpack(order)
        answer = self._fork(*descriptors) if action == FORK else self._end(pid)
        try:
            self._control.sendall(ANSWER.pack(answer))
        except ConnectionError:
            return False
        return True

    def _parent_lives(self) -> bool:
        while not select.select([self._control], [], [], _LOOK_AFTER_PARENT_S)[0]:
            if os.getppid() != self._parent:
                return False
        return True

    def _fork(self, channel: int, output: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._work(channel, output)
        _lead(pid)
        os.close(channel)
        os.close(output)
        self._workers.add(pid)
        return pid

    def _work(self, channel: int, output: int) -> NoReturn:
        """The life of a worker."""
        status = 1
        try:
            _lead(0)
            self._control.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (self._memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
            with os.fdopen(channel, "rb", closefd=False) as requests, os.fdopen(channel, "wb") as replies:
                serve(self._function, requests, replies)
            status = 0
        finally:
            os._exit(status)

    def _end(self, pid: int) -> int:
        if pid not in self._workers:
            return 0
        # with what it forked; harmless where it has ended by itself: it is not reaped before the next line
        os.killpg(pid, signal.SIGKILL)
        self._workers.discard(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _lead(pid: int) -> None:
    """Give a worker its own group of processes; server and worker both do it, as neither knows which runs first."""
    with contextlib.suppress(PermissionError, ProcessLookupError):  # it has ended, or has been told already
        os.setpgid(pid, 0)


def _main(target: str, memory_bytes: int) -> None:
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    module_name, _, name = target.partition(":")
    module = importlib.import_module(module_name)
    function = getattr(module, name)
    getattr(module, "warm_up", lambda: None)()
    gc.freeze()  # what is imported stays shared with the workers
    _Server(function, control, memory_bytes).run()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
