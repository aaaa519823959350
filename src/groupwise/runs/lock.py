"""One process at a time works in a directory; a killed process holds nothing."""

import fcntl
import os
import tempfile
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


class Neighbours:
    """The other runs, as one run sees them."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._seen, self._known = file, 0, set[Path]()

    def news(self) -> list[str]:
        """Return directories of the other runs that began since the last call; a system call if nothing changed."""
        try:
            now = self._file.parent.stat().st_mtime_ns if self._file else self._seen
        except FileNotFoundError:  # the system empties the directory when the user logs out
            return []
        if self._file is None or now == self._seen:
            return []
        self._seen = now
        live: dict[Path, str] = {}
        for other in self._file.parent.glob("run-*"):
            if other == self._file:
                continue
            with suppress(FileNotFoundError), other.open("rb") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    other.unlink()  # its process is gone
                except BlockingIOError:
                    if directory := held.read().decode():
                        live[other] = directory
        fresh, self._known = live.keys() - self._known, set(live)
        return sorted(live[file] for file in fresh)


@contextmanager
def announced(run: Path) -> Iterator[Neighbours]:
    """Announce this run to others while it lasts. Where that is impossible, nothing fails: it has no neighbours."""
    try:
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"groupwise-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, str(run.resolve()).encode())
        file = folder / f"run-{uuid.uuid4().hex[:8]}"
        os.rename(name, file)  # seen by others only now that it is locked
    except OSError:
        yield Neighbours(None)
        return
    try:
        yield Neighbours(file)
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)
