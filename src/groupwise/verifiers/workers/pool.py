"""Worker processes with a deadline that the parent keeps: on expiry the worker is killed and replaced.

Signals and threads bound nothing here: GMP ignores alarms, and a thread cannot be killed. Workers are forked from a
clean server (`fork_server.py`) that has imported everything once, so a new one costs milliseconds.
"""

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.errors import VerifierError
from groupwise.verifiers.workers.fork_server import START_S, DiedError, ExpiredError, ForkServer, Worker

MEMORY_BYTES = 2 << 30
"""Address space of one worker."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request: `ok` with the function's value, or why there is none."""

    status: Literal["ok", "timeout", "crashed"]
    value: Any = None
    evidence: str = ""


class WorkerPool:
    """Up to `num_workers` processes that run one function of a JSON value each; safe to use from many threads.

    `target` names the function as `package.module:function`; it is imported in the fork server only. `prepare` is the
    first request of every worker, which is not part of a deadline. With `inherit` workers see the environment's
    variables.
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
        for _ in range(num_workers):
            self._idle.put(None)

    def start(self) -> None:
        """Have a worker ready before the first request; a failure is left to that request to report."""
        worker = self._take()
        try:
            worker = worker or self._new_worker()
        except (ExpiredError, DiedError, OSError):
            worker = None
        finally:
            self._idle.put(worker)

    def map(self, requests: Sequence[Any], timeout_s: float) -> list[Reply]:
        """One reply per request, in the same order; waits for all of them."""
        if self._num_workers == 1 or len(requests) < 2:
            return [self.call(request, timeout_s) for request in requests]
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(threads.map(lambda request: self.call(request, timeout_s), requests))

    def call(self, request: Any, timeout_s: float) -> Reply:
        """Run one request, waiting for a free worker first; the deadline starts when the worker has it.

        Raises:
            VerifierError: the pool was closed meanwhile.
        """
        worker = self._take()
        try:
            worker = worker or self._new_worker()
            message = worker.ask(request, timeout_s)
        except (ExpiredError, DiedError, OSError, ValueError) as error:
            worker = _discard(worker)
            return _failure(error, timeout_s)
        except BaseException:
            worker = _discard(worker)
            raise
        finally:
            self._idle.put(worker)
        return Reply("ok", message["reply"]) if "reply" in message else Reply("crashed", evidence=message["failed"])

    def close(self) -> None:
        """Kill the workers when they are idle, and the server, for good.

        Calls that still wait for a worker in other threads are refused: after an interrupt nothing starts again.
        """
        self._is_closed = True
        workers = [self._idle.get() for _ in range(self._num_workers)]
        with self._lock:
            for worker in workers:
                self._idle.put(_discard(worker))
            if self._server is not None:
                self._server.close()
                self._server = None

    def _new_worker(self) -> Worker:
        """A new worker that has answered the first request of every worker."""
        worker = self._fork()
        if self._prepare is None:
            return worker
        try:
            message = worker.ask(self._prepare, START_S)
        except ExpiredError:
            worker.kill()
            raise DiedError(f"not ready after {START_S:g} s") from None
        except BaseException:
            worker.kill()
            raise
        if "failed" in message:
            worker.kill()
            raise DiedError(message["failed"])
        return worker

    def _take(self) -> Worker | None:
        """An idle worker, or None in place of one that is yet to be forked."""
        worker = self._idle.get()
        if self._is_closed:
            self._idle.put(worker)
            raise VerifierError("completions were handed to a verifier whose workers have been closed")
        return worker

    def _fork(self) -> Worker:
        """A worker of the server, which is started if it is not running and replaced if it has died."""
        with self._lock:
            if self._server is not None:
                try:
                    return self._server.fork()
                except (DiedError, ExpiredError):
                    self._server.close()
                    self._server = None
            self._server = ForkServer(self._target, self._memory_bytes, self._inherit)
            return self._server.fork()


def _discard(worker: Worker | None) -> Worker | None:
    """Kill a worker; what takes its place in the pool is None, a worker yet to be forked."""
    if worker is not None:
        worker.kill()
    return None


def _failure(error: Exception, timeout_s: float) -> Reply:
    if isinstance(error, ExpiredError):
        return Reply("timeout", evidence=f"no result after {timeout_s:g} s; the worker was killed")
    return Reply("crashed", evidence=str(error) or type(error).__name__)


__all__ = ["MEMORY_BYTES", "START_S", "Reply", "WorkerPool"]
