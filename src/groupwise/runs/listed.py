"""What a list of completions shows, kept in the footer of their file, so that a list opens without reading a column.

Ten thousand completions are 625 row groups; to read eight columns of each takes longer than all the rest of a list. The
footer is read anyway. It holds the columns as JSON, compressed, as text: readers that do not know it pass it over.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

KEY = b"groupwise_listed"
COLUMNS: Mapping[str, type | tuple[type, ...]] = {
    "problem": str, "sample": int, "outcome": str, "reward": (float, int), "advantage": (float, int),
    "num_tokens": int, "finish_reason": str, "text": str, "reward_parts": str,
}  # fmt: skip
"""Columns and the types of their values; each may be null, too."""
MOST_TEXT = 160
"""Characters of a completion that a list shows."""
MOST_BYTES = 64_000_000
"""Of the columns; what claims to be larger is not unpacked."""


def packed(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The columns of these rows, for the footer."""
    columns = {name: [row.get(name) for row in rows] for name in COLUMNS}
    columns["text"] = [(text or "")[:MOST_TEXT] for text in columns["text"]]
    columns["reward_parts"] = [json.dumps(dict(parts or {})) for parts in columns["reward_parts"]]  # as in the file
    return base64.b64encode(zlib.compress(json.dumps(columns, separators=(",", ":")).encode("ascii"), 6))


def unpacked(footer: Mapping[bytes, bytes] | None, num_rows: int) -> dict[str, list[Any]] | None:
    """The columns of a file with so many rows; None where its footer has none, or none that fit it."""
    if not footer or KEY not in footer:
        return None
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(base64.b64decode(footer[KEY], validate=True), MOST_BYTES)
        columns = json.loads(text) if inflate.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    if not isinstance(columns, dict) or columns.keys() != COLUMNS.keys():
        return None
    return columns if all(_fits(columns[name], kind, num_rows) for name, kind in COLUMNS.items()) else None


def _fits(values: Any, kind: type | tuple[type, ...], num_rows: int) -> bool:
    if not isinstance(values, list) or len(values) != num_rows:
        return False
    return all(value is None or isinstance(value, kind) for value in values)
