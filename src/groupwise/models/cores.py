"""Laying work on the processor's cores, so that a core taken by another program makes no other core wait.

A product that is split over cores ends where all its threads meet. When another program takes one of the cores, the
other threads wait at every product for the one that lost it, so a busy browser costs several times its share of the
machine. Therefore independent pieces of work run side by side, one thread each (`in_threads`), and where each piece
needs the one before, as in decoding, products are split only over the cores that no other program uses (`Sharing`).
Neither changes a result: the pieces do not depend on the number of threads, and their results are used in order.
"""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from threading import Barrier, local
from typing import TypeVar

import torch

from groupwise.ranks.group import RANKS

T = TypeVar("T")
R = TypeVar("R")

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
# Read by torch when it first allocates: Linux then lends pages of 2 MiB for tensors that are as large. They save faults
# when memory is new, and look-ups of addresses when keys and values are read. No result changes.

WAITING = 2
"""Results of `in_threads` that may wait for the caller beside the work in hand: a slow piece then stops no worker."""


def in_threads(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> Iterator[R]:
    """Yield `work` of every item, in order: on a processor side by side, one thread each; elsewhere in turn.

    Whether gradients are recorded is taken over from the caller; other contexts (autocast, inference) are not, so
    `work` enters those it needs.
    """
    num_workers = num_side_by_side(len(items), device)
    if num_workers < 2:
        yield from map(work, items)
        return
    num_threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    pool, pending = _pool(num_workers, num_threads), deque[Future[R]]()

    def run(item: T) -> R:
        with torch.set_grad_enabled(gradients):
            return work(item)

    torch.set_num_threads(1)  # the caller's own products meanwhile: threads that help with one keep spinning after it
    try:
        for item in items:
            pending.append(pool.submit(run, item))
            if len(pending) == num_workers + WAITING:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # also after an error, or when the caller stops early: nothing is left behind
        for future in pending:
            future.cancel()
        wait(pending)
        torch.set_num_threads(num_threads)


def shared_out(work: Callable[[T], R], items: Sequence[T], device: torch.device) -> Iterator[R]:
    """Yield `work` of every item, in order: `in_threads`, or, where there are several ranks, by each of them a share.

    All ranks get all results, their tensors on the processor and detached.
    """
    yield from RANKS.each(work, items) if RANKS.size > 1 else in_threads(work, items, device)


def num_side_by_side(num_items: int, device: torch.device, num_threads: int = 0) -> int:
    """Return how many of `num_items` are worked on at a time, with this many threads (0: those that torch has)."""
    return min(num_threads or torch.get_num_threads(), num_items) if device.type == "cpu" else 1


def num_in_hand() -> int:
    """Return how many pieces of work may be in hand now: the workers of `in_threads` within its work, else 1."""
    return getattr(_worker, "num_workers", 1)


_worker = local()  # Set in the threads of a pool


@cache
def _pool(num_workers: int, num_threads: int) -> ThreadPoolExecutor:
    """Workers that divide this many threads of torch; each keeps its number."""
    ready = Barrier(num_workers + 1)

    def begin() -> None:
        torch.get_num_threads()  # its first use in a thread would undo what was set before
        torch.set_num_threads(num_threads // num_workers)
        _worker.num_workers = num_workers
        ready.wait()

    pool = ThreadPoolExecutor(num_workers, "groupwise", initializer=begin)
    for _ in range(num_workers):
        pool.submit(int)  # a thread begins with the first work that no idle one can take
    ready.wait()
    torch.set_num_threads(num_threads)  # threads that begin later take the number that was set last, by any thread
    return pool


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads

LOOK_EVERY_S = 0.2
"""Seconds between two readings of what other programs use; their times are counted in hundredths of a second."""
TAKEN = 0.5  # Cores in use by others from which on one of them counts as taken
_asked_for = False
"""True once a recipe has said how many threads this process uses; as torch's number, it holds for the process."""


def ask_for_threads(number: int) -> None:
    """Use this many threads, however busy the machine is."""
    global _asked_for
    torch.set_num_threads(number)
    _asked_for = True


def keep_to_quota() -> None:
    """Use no more threads than the container may use cores; a number that the user asked for stays."""
    if "OMP_NUM_THREADS" not in os.environ and not _asked_for and quota() < torch.get_num_threads():
        torch.set_num_threads(max(1, int(quota())))


def quota() -> float:
    """Return how many cores the control groups of this process let it use at a time; infinite without a limit."""
    limits = [math.inf]
    for line in _GROUPS.read_text().splitlines() if _GROUPS.exists() else ():
        _, kinds, path = line.split(":", 2)
        root = _CONTROL if not kinds else _CONTROL / "cpu"  # version 2, or the processor's own tree of version 1
        if kinds and "cpu" not in kinds.split(","):
            continue
        group = root / path.lstrip("/")  # not there from inside a container, which sees its own group as the root
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(root))):
            if (folder / "cpu.max").exists():
                allowed, period = (folder / "cpu.max").read_text().split()
            elif (folder / "cpu.cfs_quota_us").exists():
                allowed, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
            else:
                continue
            if allowed not in ("max", "-1"):
                limits.append(int(allowed) / int(period))
    return min(limits)


class Sharing:
    """Context in which products are split only over the cores that other programs leave, at least one.

    On Linux. Elsewhere, and where the user asked for a number of threads (`OMP_NUM_THREADS`, `model.num_threads`), the
    number stays.
    """

    def __init__(self) -> None:
        self._usual = torch.get_num_threads()
        self._adapts = self._usual > 1 and "OMP_NUM_THREADS" not in os.environ and not _asked_for

    def __enter__(self) -> "Sharing":
        self.look()
        return self

    def __exit__(self, *error: object) -> None:
        self._use(self._usual)

    def look(self) -> None:
        """Use the cores that others leave; to be called often, since it mostly returns at once."""
        if self._adapts:
            self._use(min(self._usual, max(1, _meter().num_cores - int(_meter().lately() + TAKEN))))

    def _use(self, num_threads: int) -> None:
        if torch.get_num_threads() != num_threads:
            torch.set_num_threads(num_threads)


@cache
def _meter() -> "CoreMeter":
    return CoreMeter()


class CoreMeter:
    """Measures how many cores other programs use, as the mean over the time between two readings.

    Processes that this one started are not others. Programs of lower priority do not count: they give way. What a
    virtual machine's host took away does.
    """

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
        self._last = self._read()
        self._lately = 0.0

    @property
    def num_cores(self) -> int:
        return len(self._cores)

    def lately(self) -> float:
        """Return what others used at the last reading, which is renewed every `LOOK_EVERY_S`."""
        if time.monotonic() - self._last[0] > LOOK_EVERY_S:
            self._lately = self.others()
        return self._lately

    def others(self) -> float:
        """Return the cores in use by other programs since the last call; 0 where the system does not tell."""
        before, self._last = self._last, self._read()
        elapsed, busy, ours = (now - then for now, then in zip(self._last, before, strict=True))
        return max(0.0, (busy - ours) / elapsed) if elapsed else 0.0

    def _read(self) -> tuple[float, float, float]:
        """Seconds on the clock, that this process's cores were busy, and that it used with processes it started."""
        busy = 0
        for line in _STAT.read_text().splitlines() if _STAT.exists() else ():
            name, *ticks = line.split()
            if name[3:].isdigit() and int(name[3:]) in self._cores:
                user, nice, system, _, _, interrupts, soft_interrupts, stolen, *_ = map(int, ticks)
                busy += user + system + interrupts + soft_interrupts + stolen + (nice if _GIVES_WAY else 0)
        return (time.monotonic(), busy / _TICKS, time.process_time() + _started_seconds()) if busy else (0.0, 0.0, 0.0)


def _started_seconds() -> float:
    """Processor time of all processes that this one started, and of those that they started."""
    ended, ticks = os.times(), 0
    tasks = list(_PROCESSES.glob("self/task/*"))
    while tasks:
        try:
            for child in (tasks.pop() / "children").read_text().split():
                ticks += sum(map(int, (_PROCESSES / child / "stat").read_text().rpartition(")")[2].split()[11:15]))
                tasks.append(_PROCESSES / child / "task" / child)
        except OSError:  # it ended just now, or the system keeps no such list
            continue
    return ended.children_user + ended.children_system + ticks / _TICKS


_PROCESSES = Path("/proc")
_GROUPS = Path("/proc/self/cgroup")
_CONTROL = Path("/sys/fs/cgroup")
_STAT = _PROCESSES / "stat"
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_GIVES_WAY = hasattr(os, "nice") and os.nice(0) > 0
"""This process has a lower priority itself, so its own time is counted as such."""
