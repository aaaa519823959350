"""Files of recall: JSON, and one JSON object a line."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from groupwise.runs.atomic import write_file


def as_json(content: Mapping[str, Any]) -> bytes:
    """A JSON file's content; what UTF-8 cannot hold is spelled out."""
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode("utf-8", errors="backslashreplace")


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line, whole or not at all."""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_file(path, lines.encode("utf-8", errors="backslashreplace"))


def file_hash(path: Path) -> str:
    """16 hex digits of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
