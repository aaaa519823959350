"""What the C library keeps of the memory that this process has freed. Where it is not glibc, nothing is done."""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

TRIM, MMAP = -1, -3
"""Parameters of `mallopt`: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h."""
KEPT = 1 << 29
"""Bytes freed at the end of the heap that stay with the process."""
FROM_THE_HEAP = 1 << 25
"""Largest block that is taken from the heap; what glibc itself would come to, but only after such blocks were freed."""


def keep_freed_memory() -> None:
    """Keep what a step has freed for the next one, instead of giving it back to the system and asking for new pages.

    Every new page is cleared by the system when it is first touched, and sampling, which has small tensors and many of
    them, waits for that. What the user has set (`MALLOC_TRIM_THRESHOLD_` and the like, `GLIBC_TUNABLES`) stays.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    if (mallopt := _function("mallopt")) is not None:
        mallopt(TRIM, KEPT)
        mallopt(MMAP, FROM_THE_HEAP)


def return_freed_memory() -> None:
    """Give the system what this process has freed and still holds.

    What a layer lets go lies between the inputs that are kept, in pieces that often do not fit the next layer. Without
    this, a third of the peak would be such holes.
    """
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@cache
def _function(name: str) -> Callable[..., Any] | None:
    return getattr(ctypes.CDLL(None), name, None) if os.name == "posix" else None
