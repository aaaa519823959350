"""Files and directories that exist whole or not at all, whenever a process is killed; one at a time works in them."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

from groupwise.errors import CheckpointError

MANIFEST = "manifest.json"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP,
    errno.ENOLCK,
)  # fmt: skip


@contextmanager
def translated_disk_errors(what: Path) -> Iterator[None]:
    """Say in one sentence that the disk is full, or that nothing can be written at this path."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL + REFUSED:
            raise
        way_out = "make room" if error.errno in FULL else "mend that, or choose another place"
        raise CheckpointError(
            f"{what} cannot be written: {error.strerror}. What was finished before is intact; "
            f"{way_out} and run the same command again to resume from the last checkpoint"
        ) from None


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, flush it to disk, and rename it into place."""
    temporary = path.with_name(f".{path.name}.tmp")
    if not os.path.exists(path.parent):
        raise CheckpointError(f"{path} cannot be written: there is no directory {path.parent}")
    with translated_disk_errors(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def refuse_to_replace(path: Path) -> None:
    """Writing a model directory may replace nothing but a model directory that was written in the same way."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not ((path / MANIFEST).is_file() and (path / "config.json").is_file()):
        raise CheckpointError(f"{path} exists and is not a model directory written by this command: choose another")


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Fill a directory under a temporary name; afterwards it is hashed, flushed and renamed to `path` at once.

    An existing `path` is replaced. An exception inside leaves nothing behind. Whatever made the files, their mode is
    that of any new file, 0666 without the umask: safetensors keeps its own to their owner.
    """
    with translated_disk_errors(path):
        path = path.resolve()
        temporary = path.with_name(f".{path.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            yield temporary
            files = sorted(file for file in temporary.rglob("*") if file.is_file())
            manifest = {str(file.relative_to(temporary)): sha256_of(file) for file in files}
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1))
            mode = (temporary / MANIFEST).stat().st_mode
            for file in files:
                file.chmod(mode)
            for entry in (*files, temporary / MANIFEST, temporary):
                _fsync(entry)
            old = path.with_name(f".{path.name}.old.tmp")
            shutil.rmtree(old, ignore_errors=True)
            if path.exists():
                os.replace(path, old)
            os.replace(temporary, path)
            _fsync(path.parent)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def check_directory(path: Path) -> None:
    """Compare a directory with its manifest. Raises CheckpointError."""
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise CheckpointError(f"{path} is not a finished checkpoint: it has no {MANIFEST}")
    try:
        manifest = dict(json.loads(manifest_path.read_text()).items())
    except (ValueError, AttributeError):
        raise CheckpointError(f"{path} is damaged: {MANIFEST} is not readable") from None
    for name, expected in manifest.items():
        if not (path / name).is_file():
            raise CheckpointError(f"{path} is damaged: {name} is missing")
        if sha256_of(path / name) != expected:
            raise CheckpointError(f"{path} is damaged: {name} does not have the hash in {MANIFEST}")


def replace_symlink(link: Path, target: str) -> None:
    """Point a symbolic link elsewhere in one step."""
    temporary = link.with_name(f".{link.name}.tmp")
    with translated_disk_errors(link):
        temporary.unlink(missing_ok=True)
        os.symlink(target, temporary)
        if link.is_dir() and not link.is_symlink() and link.with_name(target).exists():  # of a copy that followed links
            shutil.rmtree(link)
        os.replace(temporary, link)


def sha256_of(path: Path) -> str:
    """Return the hash of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


HELD: list[Path] = []  # directories that this process worked in, the newest last: where a report of a fault goes
LOCK = "lock"  # file in the directory that the process holds

# The system's lock belongs to the process and is gone when any of its descriptors of the file is closed, so a process
# opens the file once, however often it holds the directory.
_open: dict[tuple[int, int], tuple[IO[bytes], list[object]]] = {}
_guard = threading.RLock()


class Hold(AbstractContextManager["Hold"]):
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

    def __exit__(self, *_: object) -> None:
        self.release()

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
