"""Worker processes with a deadline that the parent keeps: on expiry the worker is killed and replaced.

Signals and threads bound nothing here: GMP ignores alarms, and a thread cannot be killed. Workers are started as fresh
interpreters (never forked from a trainer full of threads, never re-importing its script) when the first request comes.
"""

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.verifiers._worker import HEADER, encode

MEMORY_BYTES = 2 << 30
"""Address space of one worker."""
START_S = 120.0
"""Seconds a worker may take to import its libraries, which is no part of a request's deadline."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request: `ok` with the function's value, or why there is none."""

    status: Literal["ok", "timeout", "crashed"]
    value: Any = None
    evidence: str = ""


class _ExpiredError(Exception):
    """The deadline passed."""


class _DiedError(Exception):
    """The worker ended without a reply."""


class _Worker:
    """One process. After any failure it is killed and must not be used again."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "groupwise.verifiers._worker", target, str(memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(),
            start_new_session=True,  # an interrupt from the keyboard is the parent's business
        )
        self._finalizer = weakref.finalize(self, _kill, self._process)
        try:
            self._receive(time.monotonic() + START_S)
        except BaseException:
            self.kill()
            raise

    def ask(self, request: Any, timeout_s: float) -> Any:
        """The worker's message; raises _ExpiredError or _DiedError."""
        deadline = time.monotonic() + timeout_s
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode({"timeout_s": timeout_s, "request": request}))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _DiedError(self._epitaph()) from None
        return self._receive(deadline)

    def kill(self) -> None:
        """End the process at once and wait for it."""
        self._finalizer()
        self._errors.close()

    def _receive(self, deadline: float) -> Any:
        size = HEADER.unpack(self._read(HEADER.size, deadline))[0]
        return json.loads(self._read(size, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        pipe, data = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(data) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise _ExpiredError
                chunk = os.read(pipe, size - len(data))
                if not chunk:
                    raise _DiedError(self._epitaph())
                data += chunk
        return data

    def _epitaph(self) -> str:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the worker closed its pipe"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 300))
        words = " ".join(self._errors.read().decode(errors="replace").split())
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        return f"the worker ended with {how}{': ...' + words if words else ''}"


class WorkerPool:
    """Up to `num_workers` processes that run one function of a JSON value each; safe to use from many threads.

    `target` names the function as `package.module:function`; it is imported in the workers only.
    """

    def __init__(self, target: str, num_workers: int = 1, memory_bytes: int = MEMORY_BYTES) -> None:
        self._target, self._memory_bytes, self._num_workers = target, memory_bytes, num_workers
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()  # None: a worker that is yet to be started
        self._lock = threading.Lock()
        for _ in range(num_workers):
            self._idle.put(None)

    def map(self, requests: Sequence[Any], timeout_s: float) -> list[Reply]:
        """One reply per request, in the same order; waits for all of them."""
        if self._num_workers == 1 or len(requests) < 2:
            return [self.call(request, timeout_s) for request in requests]
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(threads.map(lambda request: self.call(request, timeout_s), requests))

    def call(self, request: Any, timeout_s: float) -> Reply:
        """Run one request, waiting for a free worker first; the deadline starts when the worker has it."""
        worker = self._idle.get()
        try:
            worker = worker or _Worker(self._target, self._memory_bytes)
            message = worker.ask(request, timeout_s)
        except (_ExpiredError, _DiedError, OSError, ValueError) as error:
            worker = _discard(worker)
            return _failure(error, timeout_s)
        except BaseException:
            worker = _discard(worker)
            raise
        finally:
            self._idle.put(worker)
        return Reply("ok", message["reply"]) if "reply" in message else Reply("crashed", evidence=message["failed"])

    def close(self) -> None:
        """Kill the workers that are idle; later calls start new ones."""
        with self._lock:
            for worker in [self._idle.get() for _ in range(self._num_workers)]:
                self._idle.put(_discard(worker))


def _discard(worker: _Worker | None) -> _Worker | None:
    """Kill a worker; what takes its place in the pool is None, a worker yet to be started."""
    if worker is not None:
        worker.kill()
    return None


def _failure(error: Exception, timeout_s: float) -> Reply:
    if isinstance(error, _ExpiredError):
        return Reply("timeout", evidence=f"no result after {timeout_s:g} s; the worker was killed")
    return Reply("crashed", evidence=str(error) or type(error).__name__)


def _environment() -> dict[str, str]:
    """What a worker needs and no more; the fixed hash seed makes SymPy's orderings, hence verdicts, repeatable."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {"PYTHONPATH": path, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"}


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # bytes that a dead worker never read
                pipe.close()
