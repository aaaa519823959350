"""JSON as people write it, without loss, and JSON lines: the one reader of files that hold one JSON object a line."""

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, cast

from groupwise.config.places import decoded
from groupwise.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file, and where it comes from."""

    place: str  # for messages, for example `train.jsonl, line 17`
    number: int  # from 1, blank lines counted: the line of a `.jsonl` file
    fields: dict[str, Any]


class Written(float):
    """A number that keeps its decimal as it was written, which a float alone forgets."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str | float) -> Self:
        number = super().__new__(cls, text)
        number.text = str(text)
        return number


MOST_DIGITS = 4300
"""Most digits of a whole number: Python's own limit, since reading longer ones takes the square of their length."""
MOST_NESTED = 100
"""Most lists and objects around a value. Deeper ones can be read, but not written or compared any more."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number has {len(text)} digits; with more than {MOST_DIGITS} it must be written as text")
    return int(text)


def of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises ValueError: a field stands there twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the field {twice!r} more than once; one is allowed")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=of_pairs, parse_float=Written, parse_int=_whole)


def read_json(text: str, place: str) -> Any:
    """Read JSON of which nothing may be lost: decimals keep their text, a field stands once. Raises DataError."""
    try:
        value = _DECODER.decode(text)
        depth, level = 0, [value] if text.count("[") + text.count("{") > MOST_NESTED else []
        while level := [one for one in level if isinstance(one, dict | list)]:
            depth += 1
            level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
        if depth > MOST_NESTED:
            raise RecursionError
        if _HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is not JSON: {error}; it begins with {text[:40]!r}") from None
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise DataError(f"{place}: a text holds half a character, {half!r}; whole ones are needed") from None
    except RecursionError:
        raise DataError(f"{place}: lists and objects stand in one another more than {MOST_NESTED} deep") from None
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    return value


def _zstandard(path: Path) -> Any:
    import pyarrow as pa  # a third of a second, for one rare format

    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


_OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstandard}
COMPRESSED = frozenset(_OPENERS)
"""Endings of names of compressed files."""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to read, decompressed where its name ends so; whatever goes wrong is a DataError with its name."""
    try:
        if not path.is_file() and path.exists():  # a pipe would be waited for
            raise DataError(f"{path} is {'a directory' if path.is_dir() else 'no regular file'}; a file is needed")
        with _OPENERS.get(path.suffix.lower(), partial(open, mode="rb"))(path) as file:
            yield cast("IO[bytes]", file)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}") from None


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """Read a file, compressed or not, one record after the other.

    Lines end at a line feed and nowhere else: a JSON string may hold the other characters at which `splitlines` cuts.
    Blank lines, carriage returns and a byte order mark are passed over.

    Raises DataError: names the file, the line and what is wrong with it.
    """
    path = Path(path)
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            place = f"{path}, line {number}"
            try:
                text = decoded(line) if number == 1 else line.decode()
            except UnicodeDecodeError as error:
                raise DataError(f"{place} is not UTF-8: {error}") from None
            if not text.strip(" \t\r\n"):
                continue
            if number == 1 and text.lstrip()[:1] == "[":
                raise DataError(f"{place} is a JSON list or begins one; an object is needed, or the ending .json")
            value = read_json(text, place)
            if not isinstance(value, dict):
                raise DataError(f"{place} is a JSON {type(value).__name__}; an object is needed")
            yield Record(place, number, value)
