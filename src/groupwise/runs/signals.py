"""The signals by which a system asks a process to end: Slurm, a container's host, a terminal that goes away."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    """Do work that is kept in a directory on its way, and that the same command goes on with there."""
    _resuming.append(directory)
    try:
        yield
    finally:
        _resuming.remove(directory)


def stop(number: int, frame: object = None) -> None:
    """End this process, as the handler of a signal."""
    if _resuming:
        raise Stopped(number, f"; what was finished is kept in {_resuming[0]}")
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
