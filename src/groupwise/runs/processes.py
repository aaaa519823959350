"""Processes: the signals by which a system asks one to end, and jobs side by side, each of which may run commands.

Slurm, a container's host and a terminal that goes away send them.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self, TypeVar

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Stopped(SystemExit):
    """One of them came; its exit status is 128 plus its number."""

    def __init__(self, number: int, what: str = "; what was finished is kept", then: str = "resumes there") -> None:
        super().__init__(128 + number)
        self.number = number
        self.sentence = f"stopped by {signal.Signals(number).name}{what}, and the same command {then}"


_resuming: list[Path] = []


@contextmanager
def resuming(directory: Path) -> Iterator[None]:
    """Do work that is kept in a directory on its way, and that the same command goes on with there.

    A KeyboardInterrupt takes the outermost directory along.
    """
    _resuming.append(directory)
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = (directory,)
        raise
    finally:
        _resuming.remove(directory)


def stop(number: int, frame: object = None, *kept: Path) -> NoReturn:
    """End this process, as the handler of a signal."""
    if kept := kept or (*_resuming,):
        raise Stopped(number, f"; what was finished is kept in {kept[0]}")
    raise Stopped(number, "; nothing of it is kept", "begins again")


@contextmanager
def handled(handler: Callable[[int, Any], Any], numbers: tuple[signal.Signals, ...] = ENDING) -> Iterator[None]:
    """Handle signals within the block, in the main thread; one that is ignored, as under `nohup`, stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # signals are the caller's affair
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [n for n, old in before.items() if n is signal.SIGINT or old is not signal.SIG_IGN]
    try:
        for number in taken:
            signal.signal(number, handler)
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number] or signal.SIG_DFL)


Job = TypeVar("Job")
Result = TypeVar("Result")


class Children:
    """Processes that do not outlive their parent: Ctrl-C and other signals to end are passed on, each once."""

    def __init__(self, at_once: int) -> None:
        self._environment = share_of_threads(at_once)
        self._live: list[subprocess.Popen[str]] = []
        self._stopped = False
        self._guard = threading.RLock()  # of the two above; the handler of a signal may interrupt who holds it
        self._signals = handled(self._terminated)

    def __enter__(self) -> Self:
        self._signals.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signals.__exit__(None, None, None)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._stop(signal.SIGINT)  # each stops after the step in hand

    def run(self, words: Sequence[str], on_line: Callable[[str], None] = lambda line: None) -> str | None:
        with self._guard:
            if self._stopped:
                return "not begun: it was interrupted"
            # a session of its own: Ctrl-C reaches it once, through us
            process = subprocess.Popen(
                [sys.executable, "-m", "groupwise", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, encoding="utf-8", env=self._environment, start_new_session=True,
            )  # fmt: skip
            self._live.append(process)
        last = "no output"
        with process:
            for line in process.stdout or ():
                if line.strip():
                    last = line.rstrip()
                    on_line(last)
        with self._guard:
            self._live.remove(process)
        return last.removeprefix("groupwise: ") if process.returncode else None

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        self._stop(number)
        raise Stopped(number)

    def _stop(self, number: int) -> None:
        with self._guard:
            self._stopped = True
            for process in self._live:
                process.send_signal(number)


def share_of_threads(at_once: int) -> dict[str, str]:
    """Return an environment in which `at_once` processes share the CPU threads; OMP_NUM_THREADS goes before."""
    return {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // at_once)), **os.environ}


def many(
    jobs: Sequence[Job],
    at_once: int,
    work: Callable[[Job, Children], Result],
    on_done: Callable[[Job, int], None] = lambda job, done: None,
) -> list[Result]:
    """Work on jobs in threads, `at_once` at a time, and return the results in the order of the jobs.

    `work` is called with a job and the `Children` that run its commands, which share the CPU threads, and `on_done`
    with a job and the number of jobs done. An error in one cancels those that have not started, and is raised when the
    others have ended.
    """
    number = count(1)
    with ThreadPoolExecutor(at_once) as pool, Children(at_once) as children:

        def run(job: Job) -> Result:
            result = work(job, children)
            on_done(job, next(number))
            return result

        try:
            return list(pool.map(run, jobs))
        except Exception:
            pool.shutdown(cancel_futures=True)
            raise
