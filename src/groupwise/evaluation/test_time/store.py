"""Parts of a measurement on disk: what is there is read, what is not is made, so a kill loses one part.

A folder is named by the hash of everything that its content follows from. Other settings are another folder, and
settings that come back find theirs again. Time is kept beside the parts, because it is not the same twice.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self, TypeVar

from groupwise.errors import DataError
from groupwise.runs.atomic import write_file

T = TypeVar("T")
PROBLEMS_PER_PART = 16
"""Problems whose completions are lost by a kill."""


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of parts."""

    folder: Path

    @classmethod
    def of(cls, directory: Path, name: str, identity: Mapping[str, Any]) -> Self:
        """The folder of what follows from this identity, which is written into it."""
        text = json.dumps(identity, indent=1, sort_keys=True, ensure_ascii=False)
        folder = directory / f"{name}-{sha256(text.encode()).hexdigest()[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "identity.json").exists():
            write_file(folder / "identity.json", text.encode())
        return cls(folder)

    def kept(self, number: int, suffix: str, make: Callable[[Path], None]) -> tuple[Path, float]:
        """The file of a part and the seconds that it took, made where it is not there."""
        file, clock = self.folder / f"part-{number:06d}{suffix}", self.folder / f"seconds-{number:06d}.json"
        if not (file.exists() and clock.exists()):
            began = time.perf_counter()
            made = file.with_name(f".{file.name}.made")
            make(made)
            write_file(clock, json.dumps(time.perf_counter() - began).encode())
            made.replace(file)  # last: a part that is there has its seconds
        return file, float(_read(clock))

    def values(self, number: int, make: Callable[[], Any]) -> tuple[Any, float]:
        """The JSON value of a part and the seconds that it took."""
        file, seconds = self.kept(number, ".json", lambda path: write_file(path, json.dumps(make()).encode()))
        return _read(file), seconds


def parts(items: Sequence[T]) -> Iterable[tuple[int, Sequence[T]]]:
    """Number and items of each part."""
    for start in range(0, len(items), PROBLEMS_PER_PART):
        yield start // PROBLEMS_PER_PART, items[start : start + PROBLEMS_PER_PART]


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read ({error}): delete it, and it is made again") from None
