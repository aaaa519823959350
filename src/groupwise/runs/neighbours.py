"""Other runs of the same user on this machine: each holds a file locked for as long as its process lives.

The files lie in the user's runtime directory. A killed process holds nothing; the next reader deletes its file.
"""

import fcntl
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Neighbours:
    """The other runs, as one run sees them."""

    def __init__(self, own: Path | None) -> None:
        self._own, self._seen, self._known = own, 0, set[Path]()

    def news(self) -> list[str]:
        """Directories of the other runs that began since the last call; a system call where nothing changed."""
        try:
            now = self._own.parent.stat().st_mtime_ns if self._own else self._seen
        except FileNotFoundError:  # the system empties the directory when the user logs out
            return []
        if self._own is None or now == self._seen:
            return []
        self._seen = now
        live = {file: said for file in self._own.parent.glob("run-*") if file != self._own and (said := _read(file))}
        fresh, self._known = live.keys() - self._known, set(live)
        return sorted(live[file] for file in fresh)


@contextmanager
def announced(run: Path) -> Iterator[Neighbours]:
    """Announce this run to others while it lasts. Where that is impossible, nothing fails: it has no neighbours."""
    try:
        folder = _folder()
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, str(run.resolve()).encode())
        own = folder / f"run-{uuid.uuid4().hex[:8]}"
        os.rename(name, own)  # seen by others only now that it is locked
    except OSError:
        yield Neighbours(None)
        return
    try:
        yield Neighbours(own)
    finally:
        own.unlink(missing_ok=True)
        os.close(descriptor)


def _folder() -> Path:
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"groupwise-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder


def _read(file: Path) -> str:
    """The content of a live run's file; empty if its process is gone, and then the file is deleted."""
    with suppress(FileNotFoundError), file.open("rb") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return held.read().decode()
        file.unlink()
    return ""
