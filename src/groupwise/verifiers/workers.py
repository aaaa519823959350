"""Worker processes with a deadline that the parent keeps: on expiry the worker is killed and replaced.

Signals and threads bound nothing here: GMP ignores alarms, and a thread cannot be killed. Workers are forked from a
clean server that has imported everything once, so a new one costs milliseconds. They are trusted, and are the tier
below the sandboxes: the same fork server, without confinement.

The server is this file, run as `python -m groupwise.verifiers.workers package.module:function memory_bytes` with the
control of the server (`sandbox/zygote.py`) as standard input. It imports the function once, and its module's `warm_up`
runs, if there is one, before the first fork. A worker reads requests from its channel and answers them there, one at a
time, until the end of file; a frame is four bytes of length (big endian) and that many bytes of JSON.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import queue
import resource
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, NoReturn

from groupwise.config.places import Place
from groupwise.errors import SandboxError, VerifierError
from groupwise.runs.progress import counted
from groupwise.sandbox.fork_server import ForkServer, last_words
from groupwise.sandbox.zygote import Server

START_S = 120.0  # seconds the server may take to import its libraries, which is not part of a request's deadline
CLOSE_S = 2.0  # seconds that closing waits for verdicts in progress
MEMORY_BYTES = 2 << 30  # address space of one worker
HEADER = struct.Struct(">I")
_SPARE_CPU_S = 5


def encode(message: Any) -> bytes:
    """Return a message as a frame."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


def main(target: str, memory_bytes: int) -> NoReturn:
    """Serve until the parent is gone; a forked process works until the end of its channel."""
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    module, _, name = target.rpartition(":")
    function = place.load() if (place := Place.of(target)) else getattr(importlib.import_module(module), name)
    getattr(sys.modules[function.__module__], "warm_up", lambda: None)()
    gc.freeze()  # what is imported stays shared with the workers
    channel, output = Server(control).serve()
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        for stream in (sys.stdout, sys.stderr):  # what a function prints cannot fail
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with os.fdopen(channel, "rb", closefd=False) as requests, os.fdopen(channel, "wb") as replies:
            while len(header := requests.read(HEADER.size)) == HEADER.size:
                message = json.loads(requests.read(HEADER.unpack(header)[0]))
                # a second bound, in case the parent, which keeps the deadline, is gone
                usage = resource.getrusage(resource.RUSAGE_SELF)
                seconds = math.ceil(usage.ru_utime + usage.ru_stime + message["timeout_s"] + _SPARE_CPU_S)
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
                try:
                    reply = {"reply": function(message["request"])}
                except Exception as error:  # reported as CRASHED with this text; the worker lives on
                    reply = {"failed": f"{type(error).__name__}: {error}"[:400]}
                replies.write(encode(reply))
                replies.flush()
        status = 0
    finally:
        os._exit(status)


class Reply(NamedTuple):
    """Reply to a request: `ok` with the function's value, or the reason for having none."""

    status: Literal["ok", "timeout", "crashed"]
    value: Any = None
    evidence: str = ""


class Worker:
    """One process. After any failure it is killed and must not be used again."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._channel, child_end = socket.socketpair()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        resources = contextlib.ExitStack()
        resources.push(self._channel)
        resources.push(self._output)
        self._finalizer = weakref.finalize(self, resources.close)  # at its channel's end it ends
        with child_end:
            try:
                self._pid = server.fork(child_end.fileno(), self._output.fileno())
            except BaseException:
                self._finalizer()
                raise

    def ask(self, request: Any, timeout_s: float) -> Any:
        """Return the worker's message (TimeoutError: none in time; OSError, SandboxError: it or its server ended)."""
        deadline = time.monotonic() + timeout_s
        try:
            self._channel.settimeout(timeout_s)
            self._channel.sendall(encode({"timeout_s": timeout_s, "request": request}))
            return json.loads(self._read(HEADER.unpack(self._read(HEADER.size, deadline))[0], deadline))
        except TimeoutError:
            self.end_now()
            raise
        except OSError:
            code, words = self._server.end_worker(self._pid), last_words(self._output, 300)
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        if code == -signal.SIGKILL:
            ending += " (from outside, or because it closed its pipe)"
        raise ConnectionError(f"the worker ended with {ending}{': ...' + words if words else ''}")

    def _read(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError
            self._channel.settimeout(remaining_s)
            if not (chunk := self._channel.recv(size - len(data))):
                raise ConnectionError
            data += chunk
        return data

    def end_now(self) -> None:
        """End the process, also while another thread waits for its answer, and even if the server has died."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def kill(self) -> None:
        with contextlib.suppress(SandboxError):  # the server is gone, and its workers with it
            self._server.end_worker(self._pid)
        self._finalizer()


class WorkerPool:
    """Up to `num_workers` processes that run one function of a JSON value each; safe to use from many threads.

    `target`, `package.module:function` or `file.py:function`, is imported in the fork server only. `prepare` is the
    first request of every worker, without a deadline. With `inherit` workers see the environment's variables.
    """

    def __init__(
        self,
        target: str,
        num_workers: int = 1,
        memory_bytes: int = MEMORY_BYTES,
        prepare: Any = None,
        inherit: bool = False,
    ) -> None:
        self._target, self._memory_bytes, self._num_workers = target, memory_bytes, num_workers
        self._prepare, self._inherit = prepare, inherit
        self._server: ForkServer | None = None
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()  # None: a worker that is yet to be forked
        self._lock = threading.Lock()
        self._is_closed = False
        self._busy = set[Worker]()
        for _ in range(num_workers):
            self._idle.put(None)

    def start(self) -> None:
        worker = self._take()
        try:
            worker = worker or self._new_worker()
        except (SandboxError, OSError):
            worker = None
        finally:
            self._idle.put(worker)

    def map(self, requests: Sequence[Any], timeout_s: float) -> list[Reply]:
        if self._num_workers == 1 or len(requests) < 2:
            return [self.call(request, timeout_s) for request in requests]
        with ThreadPoolExecutor(self._num_workers) as threads:
            replies = threads.map(lambda request: self.call(request, timeout_s), requests)
            try:
                return list(counted("judged", replies, len(requests)))
            except BaseException:  # the threads end now, not at the deadlines of what they asked
                self._end_busy()
                raise

    def call(self, request: Any, timeout_s: float) -> Reply:
        """Run one request; its deadline starts when a free worker has it (VerifierError: the pool was closed)."""
        worker = self._take()
        try:
            worker = worker or self._new_worker()
            self._busy.add(worker)
            try:
                message = worker.ask(request, timeout_s)
            finally:
                self._busy.discard(worker)
        except (SandboxError, OSError, ValueError) as error:
            worker = _discard(worker)
            if isinstance(error, TimeoutError):
                return Reply("timeout", evidence=f"no result after {timeout_s:g} s; the worker was killed")
            return Reply("crashed", evidence=str(error) or type(error).__name__)
        except BaseException:
            worker = _discard(worker)
            raise
        finally:
            self._idle.put(worker)
        return Reply("ok", message["reply"]) if "reply" in message else Reply("crashed", evidence=message["failed"])

    def close(self) -> None:
        """Kill the workers when idle, or soon, and the server; calls that wait in other threads are refused."""
        self._is_closed = True
        timer = threading.Timer(CLOSE_S, self._end_busy)
        timer.start()
        workers = [self._idle.get() for _ in range(self._num_workers)]
        timer.cancel()
        with self._lock:
            for worker in workers:
                self._idle.put(_discard(worker))
            if self._server is not None:
                self._server.end()
                self._server = None

    def _end_busy(self) -> None:
        for worker in list(self._busy):
            worker.end_now()

    def _take(self) -> Worker | None:
        worker = self._idle.get()
        if self._is_closed:
            self._idle.put(worker)
            raise VerifierError("completions were handed to a verifier whose workers have been closed")
        return worker

    def _new_worker(self) -> Worker:
        worker = self._fork()
        if self._prepare is None:
            return worker
        try:
            message = worker.ask(self._prepare, START_S)
            if "failed" in message:
                raise ConnectionError(message["failed"])
        except BaseException as error:
            worker.kill()
            if isinstance(error, TimeoutError):
                raise ConnectionError(f"not ready after {START_S:g} s") from None
            raise
        return worker

    def _fork(self) -> Worker:
        with self._lock:
            if self._server is not None:
                try:
                    return Worker(self._server)
                except SandboxError:
                    self._server.end()
                    self._server = None
            command = [sys.executable, "-m", "groupwise.verifiers.workers", self._target, str(self._memory_bytes)]
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            # nothing but what a server needs; the fixed hash seed makes SymPy's orderings, hence verdicts, repeatable
            needed = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}
            self._server = ForkServer(command, {**(os.environ if self._inherit else {}), **needed}, START_S)
            return Worker(self._server)


def _discard(worker: Worker | None) -> Worker | None:
    if worker is not None:
        worker.kill()
    return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
