"""Earlier replies on disk: one file per request, whole or ignored, safe to share between threads and processes."""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.verifiers.judge.opinion import Opinion


class Cache:
    """Opinions by the hash of the request; an empty directory name keeps nothing."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory).expanduser() if directory else None

    def get(self, digest: str) -> Opinion | None:
        """The opinion on that request; None when there is none, or when its file is damaged."""
        try:
            return _read(digest, self._path(digest).read_bytes()) if self._directory else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VerifierError(f"the judge's cache {self._directory} cannot be read: {error.strerror}") from None

    def put(self, digest: str, opinion: Opinion) -> None:
        """Keep an opinion; it is there whole or not at all, whoever else writes the same."""
        if self._directory is None:
            return
        entry = {**opinion._asdict(), "check": _check(digest, opinion)}
        try:
            _write(self._path(digest), json.dumps(entry).encode())
        except OSError as error:
            raise VerifierError(f"the judge's cache {self._directory} cannot be written: {error.strerror}") from None

    def _path(self, digest: str) -> Path:
        assert self._directory is not None
        return self._directory / digest[:2] / f"{digest}.json"


def _read(digest: str, content: bytes) -> Opinion | None:
    try:
        entry = json.loads(content)
    except (ValueError, RecursionError):
        return None
    match entry:
        case {"content": str(said), "finish_reason": str(reason), "check": str(check)}:
            opinion = Opinion(said, reason)
            return opinion if check == _check(digest, opinion) else None
    return None


def _check(digest: str, opinion: Opinion) -> str:
    return hashlib.sha256(json.dumps([digest, *opinion]).encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # a name of its own for every writer; no flush to disk, because a torn file fails its check and is asked for again
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
