"""The time that a stage took, attempts that were killed included."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from groupwise.errors import CheckpointError
from groupwise.pipeline.directory import StageDirectory

PERIOD_S = 5.0
"""So much of an attempt that is killed may be missing."""


@contextmanager
def timed(place: StageDirectory, name: str) -> Iterator[None]:
    """Add the seconds of what is done inside to `name` in the stage's cost, also while it is being done."""
    before, began, done = place.cost.get(name, 0.0), time.perf_counter(), threading.Event()

    def save() -> None:
        place.write("cost", {**place.cost, name: before + time.perf_counter() - began})

    def save_often() -> None:
        while not done.wait(PERIOD_S):
            try:
                save()
            except CheckpointError:  # a full disk stops the work itself, which says so
                return

    thread = threading.Thread(target=save_often, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        save()
