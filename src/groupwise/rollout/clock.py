"""Where a step's time goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seconds:
    """Where a step's time went."""

    generate: float
    verify: float
    train: float
    processor: float
    """Processor time of all threads, which other programs on the machine do not change much."""


class Clock:
    """Adds up where a step's time goes: `with clock("verify"): ...`."""

    def __init__(self) -> None:
        self._spent = {"generate": 0.0, "verify": 0.0, "train": 0.0}
        self._began = time.process_time()

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._spent[what] += time.perf_counter() - began

    def seconds(self) -> Seconds:
        return Seconds(**self._spent, processor=time.process_time() - self._began)
