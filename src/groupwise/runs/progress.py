"""Long work says where it is. Whoever works long calls `say`, or counts with `counted`; a command shows it.

Nothing is shown where nobody listens, as in a script that calls the package.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
EVERY_S = 30.0
"""Seconds without a line after which work that goes on has one, where there is no bar."""


@dataclass(slots=True)
class Work:
    """One piece of work that goes on."""

    done: int
    total: int  # 0: unknown
    began: float
    first: int  # what was done when it was first heard of: a resumed one has a beginning behind it

    def line(self, what: str, now: float) -> str:
        """Return done and total, the rate, and the time that is left at this rate.

        >>> Work(done=30, total=120, began=0.0, first=10).line("steps", 40.0)
        'steps: 30 of 120, 0.5 a second, 3 min 00 s left'
        >>> Work(done=0, total=8, began=0.0, first=0).line("judged", 61.0)
        'judged: 0 of 8 after 1 min 01 s'
        """
        spent, new = now - self.began, self.done - self.first
        of = f"{what}: {self.done:,} of {self.total:,}" if self.total else f"{what}: {self.done:,}"
        if new <= 0 or spent <= 0:
            return f"{of} after {span(spent)}"
        left = f", {span((self.total - self.done) * spent / new)} left" if self.total else ""
        return f"{of}, {new / spent:.2g} a second{left}"


class Reporter:
    """Writes a line about what goes on where nothing was written for a while."""

    def __init__(
        self,
        write: Callable[[str], None],
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[dict[str, Work], float], None] | None = None,
    ) -> None:
        """Make it with a function that prints a line, or, of a terminal, with one that draws all works as bars."""
        self._write, self._every_s, self.clock, self._draw = write, every_s, clock, draw
        self._works: dict[str, Work] = {}
        self._newest = clock()
        self._guard = threading.Lock()

    def say(self, what: str, done: int, total: int) -> None:
        with self._guard:
            work = self._works.get(what)
            if total and done >= total:
                self._works.pop(what, None)
            elif work is None or done < work.done:
                self._works[what] = Work(done, total, self.clock(), done)
            else:
                work.done, work.total = done, total

    def wrote(self) -> None:
        """Hear that something was printed: a reader has seen that the command lives."""
        self._newest = self.clock()

    def tell(self, line: str) -> None:
        self.wrote()
        self._write(line)

    def look(self) -> None:
        """Draw, or write a line where it is time for one."""
        now = self.clock()
        with self._guard:
            works = dict(self._works)
        if self._draw is not None:
            self._draw(works, now)
        elif works and now - self._newest >= self._every_s:
            self.tell("; ".join(work.line(what, now) for what, work in works.items()))


_reporters: list[Reporter] = []


@contextmanager
def shown(reporter: Reporter, look_every_s: float = 0.5) -> Iterator[None]:
    """Let a reporter show what is said while this lasts; it looks by itself, so that what says nothing is seen, too."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(look_every_s):
            reporter.look()

    thread = threading.Thread(target=look, name="progress", daemon=True)
    _reporters.append(reporter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _reporters.remove(reporter)


def say(what: str, done: int, total: int) -> None:
    """Say how much is done; `total` 0: unknown. Work is over when all of it is done."""
    for reporter in _reporters:
        reporter.say(what, done, total)


def tell(line: str) -> None:
    """Print a line about something that is waited for."""
    for reporter in _reporters:
        reporter.tell(line)


def wrote() -> None:
    """Say that something was printed."""
    for reporter in _reporters:
        reporter.wrote()


def counted(what: str, items: Iterable[T], total: int, first: int = 0) -> Iterator[T]:
    """Yield the items of a piece of work, and say how many are done; `first` of them were done before.

    >>> list(counted("squares", (n * n for n in range(3)), 3))
    [0, 1, 4]
    """
    say(what, first, total)
    try:
        for done, item in enumerate(items, first):
            say(what, done, total)
            yield item
    finally:
        say(what, max(total, 1), max(total, 1))


def span(seconds: float) -> str:
    """Return seconds in words.

    >>> span(59.4), span(119.7), span(3725)
    ('59 s', '2 min 00 s', '1 h 02 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
