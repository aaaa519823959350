"""Append-only line files of a run.

Each line of the ledger carries the hash of the line before, so an edited or torn ledger is found.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import CheckpointError
from groupwise.runs.atomic import translated_disk_errors

SCHEMA_VERSION = 1
_FIRST = "0" * 64
_TAIL = 1 << 16  # bytes from the end of a ledger that are read at first; doubled while the last line is longer


def as_json(value: Any, spelled: bool = True) -> Any:
    """Return a value with texts for the numbers that JSON does not have: `NaN`, `Infinity` and `-Infinity`; or null."""
    if isinstance(value, Mapping):
        return {str(name): as_json(entry, spelled) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry, spelled) for entry in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity") if spelled else None


def or_null(value: Any) -> Any:
    """Return a value with null for the numbers that JSON does not have, as for the ends of a one-problem interval."""
    return as_json(value, spelled=False)


def from_json(value: Any) -> Any:
    """Return a value with numbers for such texts, however they are spelled, and for integers beyond every float.

    >>> from_json({"loss": "NaN", "kl": [1, "-inf"], "seen": 10**400, "kind": "step"})
    {'loss': nan, 'kl': [1, -inf], 'seen': inf, 'kind': 'step'}
    """
    if isinstance(value, dict):
        return {name: from_json(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [from_json(entry) for entry in value]
    if isinstance(value, str) and value.lower().removeprefix("-").removeprefix("+") in ("nan", "inf", "infinity"):
        return float(value)
    if isinstance(value, int) and value.bit_length() > 1023:
        return math.inf if value > 0 else -math.inf
    return value


TORN = "its last line has no end: it is being written, or was cut"


class Damage(NamedTuple):
    """Something in a run directory that could not be read."""

    file: str  # relative to the run directory
    what: str  # a sentence
    line: int | None = None  # 1-based, where it is a line of a file of lines

    def __str__(self) -> str:
        return f"{self.file}{'' if self.line is None else f', line {self.line}'}: {self.what}"


class LineFile:
    """One JSON object a line, flushed to disk line by line, and read again only when the file has changed."""

    def __init__(self, path: Path, numbers: bool = False) -> None:
        """Name the file; with `numbers` texts such as `NaN` are read as numbers, as in metrics.jsonl."""
        self.path, self.numbers = path, numbers
        self._stamp: tuple[int, int, int] | None = None
        self._lines: list[tuple[int, dict[str, Any]]] = []
        self._damage: list[Damage] = []

    @property
    def size(self) -> int:
        """Bytes written; a checkpoint keeps it so that a resume can cut off what came after."""
        return self.path.stat().st_size if self.path.exists() else 0

    def truncate(self, size: int) -> None:
        if self.size < size:
            raise CheckpointError(
                f"{self.path} is shorter ({self.size} bytes) than its checkpoint says ({size}): it was damaged"
            )
        self.path.touch()
        os.truncate(self.path, size)

    def mend(self) -> None:
        """Cut off a last line that a kill or a full disk left without its end."""
        self.truncate(self.path.read_bytes().rfind(b"\n") + 1 if self.size else 0)

    def append(self, entry: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(entry, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
        except ValueError:  # a number that JSON does not have
            line = json.dumps(as_json(entry), ensure_ascii=False, separators=(",", ":")) + "\n"
        with translated_disk_errors(self.path), self.path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> Iterator[dict[str, Any]]:
        """Read all complete lines; a torn last line (killed while writing) is left out."""
        lines, damage = LineFile(self.path, numbers=True).read()
        for fault in damage:
            if fault.what != TORN:
                raise CheckpointError(f"{self.path.parent}/{fault}")
        return (line for _, line in lines)

    def read(self) -> tuple[list[tuple[int, dict[str, Any]]], list[Damage]]:
        """Return the objects with their line numbers, and the lines that are none; both empty without a file."""
        try:
            stat = self.path.stat()
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if stamp == self._stamp:
                return self._lines, self._damage
            self._stamp, self._lines, self._damage = None, [], []
            with self.path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if not line.endswith(b"\n"):
                        self._damage.append(Damage(self.path.name, TORN, number))
                        break
                    try:
                        value = from_json(json.loads(line)) if self.numbers else json.loads(line)
                    except (ValueError, RecursionError) as error:
                        self._damage.append(Damage(self.path.name, f"it is not JSON: {error}", number))
                        continue
                    if isinstance(value, dict):
                        self._lines.append((number, value))
                    else:
                        self._damage.append(Damage(self.path.name, "it is not an object", number))
            self._stamp = stamp
        except FileNotFoundError:
            self._stamp, self._lines, self._damage = None, [], []
        except OSError as error:
            return [], [Damage(self.path.name, f"it cannot be read: {error.strerror}")]
        return self._lines, self._damage


class Ledger(LineFile):
    """A line file whose lines form a hash chain."""

    def append(self, entry: Mapping[str, Any]) -> None:
        super().append({"schema": SCHEMA_VERSION, **entry, "previous": self._head()})

    def _head(self) -> str:
        """Hash of the last line, read from the end of the file: a long ledger costs no more than a short one."""
        end, length = self.size, _TAIL
        if not end:
            return _FIRST
        with self.path.open("rb") as file:
            while True:
                start = max(0, end - length)
                file.seek(start)
                tail = file.read(end - start)
                newline = tail.rfind(b"\n", 0, -1)  # of the line before
                if newline >= 0 or not start:
                    return _hash(tail[newline + 1 :])
                length *= 2

    def check(self) -> int:
        """Follow the chain; returns the number of lines."""
        expected, number = _FIRST, 0
        content = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(keepends=True), 1):
            try:
                previous = json.loads(line)["previous"]
            except (ValueError, TypeError, KeyError):
                raise CheckpointError(f"{self.path}, line {number}: not an entry of a ledger") from None
            if previous != expected:
                raise CheckpointError(f"{self.path}, line {number}: the line before it was changed")
            expected = _hash(line)
        return number


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def stamp_of(path: Path) -> tuple[int, int]:
    """Return what tells a file from the same one after a change. Raises OSError: there is none."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
