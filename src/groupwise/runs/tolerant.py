"""Line files of a run that is still being written, or was damaged: what can be read is read, the rest is named."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

TORN = "its last line has no end: it is being written, or was cut"


class Damage(NamedTuple):
    """Something in a run directory that could not be read."""

    file: str
    """Relative to the run directory."""
    what: str
    """A sentence."""
    line: int | None = None
    """1-based, where it is a line of a file of lines."""


@dataclass(slots=True)
class Lines:
    """The objects of a file of JSON lines, read again only when the file has changed."""

    path: Path
    _stamp: tuple[int, int, int] | None = None
    _lines: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    _damage: list[Damage] = field(default_factory=list)

    def read(self) -> tuple[list[tuple[int, dict[str, Any]]], list[Damage]]:
        """The objects with their line numbers, and the lines that are none. Both empty where there is no file."""
        try:
            stat = self.path.stat()
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if stamp != self._stamp:
                self._lines, self._damage = _parse(self.path)
                self._stamp = stamp
        except FileNotFoundError:
            self._stamp, self._lines, self._damage = None, [], []
        except OSError as error:
            return [], [Damage(self.path.name, f"it cannot be read: {error.strerror}")]
        return self._lines, self._damage


def _parse(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[Damage]]:
    lines: list[tuple[int, dict[str, Any]]] = []
    damage: list[Damage] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                damage.append(Damage(path.name, TORN, number))
                break
            try:
                value = json.loads(line, parse_constant=lambda name: None)  # NaN is no number
            except (ValueError, RecursionError) as error:
                damage.append(Damage(path.name, f"it is not JSON: {error}", number))
                continue
            if isinstance(value, dict):
                lines.append((number, value))
            else:
                damage.append(Damage(path.name, "it is not an object", number))
    return lines, damage
