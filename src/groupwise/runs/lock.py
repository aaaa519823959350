"""One process at a time works in a directory; a killed process holds nothing."""

import fcntl
import os
import threading
import weakref
from pathlib import Path
from typing import IO

from groupwise.errors import CheckpointError
from groupwise.runs.atomic import translated_disk_errors

HELD: list[Path] = []  # directories that this process worked in, the newest last: where a report of a fault goes
LOCK = "lock"  # file in the directory that the process holds

# The system's lock belongs to the process and is gone when any of its descriptors of the file is closed, so a process
# opens the file once, however often it holds the directory.
_open: dict[tuple[int, int], tuple[IO[bytes], list[object]]] = {}
_guard = threading.RLock()


class Hold:
    """A directory that this process alone works in, until `release` or its end; it may hold it twice."""

    def __init__(self, directory: Path, key: str) -> None:
        """Create the directory if needed. `key`: the setting that chooses another one, for the error."""
        path = directory / LOCK
        with translated_disk_errors(directory), _guard:
            directory.mkdir(parents=True, exist_ok=True)
            identity = _identity(path.stat()) if path.exists() else None
            if identity is None or identity not in _open:
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
            HELD.append(directory)
            token = object()
            _open[identity][1].append(token)
        self._finalizer = weakref.finalize(self, self._close, identity, token)

    def release(self) -> None:
        self._finalizer()

    @staticmethod
    def _close(identity: tuple[int, int], token: object) -> None:
        with _guard:
            file, tokens = _open[identity]
            tokens.remove(token)
            if not tokens:
                del _open[identity]
                file.close()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
