"""JSON lines: the one reader of files that hold one JSON object a line."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import DataError


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file, and where it comes from."""

    place: str  # for messages, for example `train.jsonl, line 17`
    number: int  # from 1, blank lines counted: the line of a `.jsonl` file
    fields: dict[str, Any]


def read_jsonl(path: str | Path) -> Iterator[Record]:
    """Read a file, compressed where its name ends in `.gz`, one record after the other.

    Lines end at a line feed and nowhere else: a JSON string may hold the other characters at which `splitlines` cuts.
    Blank lines, carriage returns and a byte order mark are passed over.

    Raises:
        DataError: names the file, the line and what is wrong with it.
    """
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                try:
                    text = line.decode("utf-8")
                    value = json.loads(text)
                except UnicodeDecodeError as error:
                    raise DataError(f"{place} is not UTF-8: {error}") from None
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{place} is not JSON: {error}; it begins with {text[:40]!r}") from None
                if not isinstance(value, dict):
                    raise DataError(f"{place} is a JSON {type(value).__name__}; an object is needed")
                yield Record(place, number, value)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
