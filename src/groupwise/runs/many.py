"""Jobs side by side, each of which may run commands of Groupwise as processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import FrameType, TracebackType
from typing import Self, TypeVar

from groupwise.runs.signals import Stopped, handled

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
        """Run `groupwise` with these arguments to its end."""
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
