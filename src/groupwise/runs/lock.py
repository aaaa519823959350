"""One process at a time works in a directory; a killed process holds nothing."""

import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import IO

from groupwise.errors import CheckpointError
from groupwise.runs.atomic import translated_disk_errors

LOCK = "lock"
"""File in the directory that the process holds."""

# The system's lock belongs to the process and is gone when any of its descriptors of the file is closed, so a process
# opens the file once, however often it holds the directory.
_open: dict[tuple[int, int], tuple[IO[bytes], list[object]]] = {}
_guard = threading.RLock()


class Hold:
    """A directory that this process alone works in, until `release`, the object's end, or the process's.

    The same process may hold a directory several times: a run that ended with an error may be begun again while its
    traceback still refers to it.
    """

    def __init__(self, directory: Path, key: str) -> None:
        """Create the directory if needed. `key`: the setting that chooses another one, for the error.

        Raises:
            CheckpointError: another process holds it, or the disk cannot be written.
        """
        with translated_disk_errors(directory), _guard:
            directory.mkdir(parents=True, exist_ok=True)
            self._identity = _lock(directory, key)
            token = object()
            _open[self._identity][1].append(token)
        self._finalizer = weakref.finalize(self, _release, self._identity, token)

    def release(self) -> None:
        """Let others work in the directory; a second call does nothing."""
        self._finalizer()


def _lock(directory: Path, key: str) -> tuple[int, int]:
    """Hold the lock file; its device and number on it."""
    path = directory / LOCK
    if path.exists() and (identity := _identity(path.stat())) in _open:
        return identity
    file = path.open("ab")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # which of the two, the system may choose
        file.close()
        raise CheckpointError(
            f"another process works in {directory}: wait for its end, or choose another {key}"
        ) from None
    identity = _identity(os.fstat(file.fileno()))
    _open[identity] = (file, [])
    return identity


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _release(identity: tuple[int, int], token: object) -> None:
    with _guard:
        file, tokens = _open[identity]
        tokens.remove(token)
        if not tokens:
            del _open[identity]
            file.close()
