"""Files of recall: JSON, and one JSON object a line."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.atomic import write_file


def as_json(content: Mapping[str, Any]) -> bytes:
    """A JSON file's content; what UTF-8 cannot hold is spelled out."""
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", errors="backslashreplace")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, whole or not at all."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(path, lines.encode("utf-8", errors="backslashreplace"))


def read_lines(path: Path) -> Iterable[dict[str, Any]]:
    """The rows of a file that has one JSON object a line.

    Raises:
        DataError: names the file and the line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise DataError(f"{path}, line {number} is not UTF-8: {error}") from None
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}, line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number} is no JSON object")
            yield row


def file_hash(path: Path) -> str:
    """16 hex digits of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
