"""The time that a stage took, by the clock and of the processor, attempts that were killed included.

Processor seconds are summed over the threads of this process; they say what was computed whatever else ran beside it.
"""

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
    """Add the seconds of what is done inside to `name` and `processor_name` in the stage's cost, again and again."""
    clocks = {name: time.perf_counter, f"processor_{name}": time.process_time}
    starts = {part: clock() - place.cost.get(part, 0.0) for part, clock in clocks.items()}
    done = threading.Event()

    def save() -> None:
        place.write("cost", {**place.cost, **{part: clock() - starts[part] for part, clock in clocks.items()}})

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
