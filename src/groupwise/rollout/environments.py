"""Worker processes of environments: a crash or a hang costs a process, never the run, and the deadline is kept here.

Calls that wait go to a worker together, and it plays them at the same time, except for environments that share what is
theirs within a process. Where that fails each is tried again
alone, in a new process that makes its instance again, so only the one at fault has failed.
"""

import queue
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from groupwise.tasks.environments.base import ENVIRONMENTS, EnvironmentConfig, Turn
from groupwise.types import Problem
from groupwise.verifiers.workers import WorkerPool

MOST_TOGETHER = 64
MEMORY_BYTES = 16 << 30
_TARGET = "groupwise.tasks.environments.worker:answer"
_FIELDS = [field.name for field in fields(Problem) if field.name != "environment"]


class Played(NamedTuple):
    """A worker's answer about one episode."""

    opening: Mapping[str, Any] = {}
    replies: tuple[Mapping[str, Any] | None, ...] = ()
    seconds: float = 0.0
    failed: str = ""
    """The fault of the environment; empty: none."""
    timed_out: bool = False


_Call = tuple[Mapping[str, Any], "Future[Played]"]


class Workers:
    """The processes of one environment; an episode stays with one of them."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config
        alone = ENVIRONMENTS.find(config.kind).alone
        begin = {"kind": config.kind, "settings": config.model_dump(mode="json")}
        self._pools = [WorkerPool(_TARGET, 1, MEMORY_BYTES, begin, inherit=True) for _ in range(config.num_workers)]
        self._waiting: list[queue.SimpleQueue[_Call | None]] = [queue.SimpleQueue() for _ in self._pools]
        for pool, waiting in zip(self._pools, self._waiting, strict=True):
            work = (pool, waiting, config.timeout_s, 1 if config.repeatable and alone else MOST_TOGETHER)
            threading.Thread(target=_work, args=work, name="environment", daemon=True).start()

        def end(waiting: list["queue.SimpleQueue[_Call | None]"]) -> None:
            for each in waiting:
                each.put(None)

        self._finalizer = weakref.finalize(self, end, self._waiting)

    def play(
        self,
        episode: int,
        name: str,
        problem: Problem,
        seed: int,
        turns: Sequence[Turn],
        ended: str = "",
        whole: bool = False,
    ) -> "Future[Played]":
        """Ask for the reply to the last of the turns, or for what a limit that `ended` it is worth.

        With `whole` another worker makes a new instance, and all replies come.
        """
        request = {
            "id": name, "problem": {field: getattr(problem, field) for field in _FIELDS}, "seed": seed,
            "turns": [asdict(turn) for turn in turns], "ended": ended, "whole": whole,
        }  # fmt: skip
        answer: Future[Played] = Future()
        self._waiting[(episode + whole) % len(self._waiting)].put((request, answer))
        return answer

    def close(self) -> None:
        self._finalizer()


def _work(pool: WorkerPool, waiting: "queue.SimpleQueue[_Call | None]", timeout_s: float, most: int) -> None:
    ending = False
    while not ending and (first := waiting.get()) is not None:
        calls = [first]
        while len(calls) < most and not waiting.empty() and not ending:
            if (call := waiting.get()) is None:
                ending = True
            else:
                calls.append(call)
        try:
            _ask(pool, calls, timeout_s)
        except BaseException as error:
            for _, answer in calls:
                if not answer.done():
                    answer.set_exception(error)
    pool.close()


def _ask(pool: WorkerPool, calls: list[_Call], timeout_s: float, again: bool = True) -> None:
    reply = pool.call([request for request, _ in calls], timeout_s)
    if reply.status == "ok":
        for (_, answer), found in zip(calls, reply.value, strict=True):
            answer.set_result(Played(**found))
    elif again:
        for call in calls:
            _ask(pool, [call], timeout_s, again=False)
    else:
        calls[0][1].set_result(Played(failed=reply.evidence, timed_out=reply.status == "timeout"))


class Crews:
    """The workers of every environment that a run's problems name, started when first needed."""

    def __init__(self) -> None:
        self._by_settings: dict[str, Workers] = {}
        self._lock = threading.Lock()

    def of(self, config: EnvironmentConfig) -> Workers:
        settings = config.model_dump_json()
        with self._lock:
            if settings not in self._by_settings:
                self._by_settings[settings] = Workers(config)
            return self._by_settings[settings]
