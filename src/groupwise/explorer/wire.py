"""The files of the pages, and their facts on the way there: JSON that every browser reads, token figures unrounded."""

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.runs.ledger import or_null

TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}  # fmt: skip


@cache
def pages() -> dict[str, tuple[str, bytes]]:
    """Type and content of every file of the pages, by its name; nothing else is handed out."""
    folder = resources.files("groupwise.explorer") / "static"
    files = {f"{place}{file.name}": file for place in ("", "vendor/") for file in folder.joinpath(place).iterdir()}
    kinds = {name: TYPES.get(name.rpartition(".")[2]) for name in sorted(files)}
    return {name: (kind, files[name].read_bytes()) for name, kind in kinds.items() if kind}


def encoded(facts: Any) -> bytes:
    """JSON in ASCII; a number that JSON does not have (NaN, infinities) is null."""
    return json.dumps(or_null(facts), allow_nan=False, separators=(",", ":")).encode("ascii")


def inert(content: bytes) -> str:
    """The same JSON so that it can stand between tags: nothing in it can end a tag or begin one."""
    text = content.decode("ascii")
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def floats(values: NDArray[np.float32] | None) -> str | None:
    """(T,) numbers as base64 of little-endian 32-bit floats, so that each arrives as it was recorded; NaN, too."""
    return None if values is None else base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def short_hash(text: str) -> str:
    """12 hexadecimal digits that stand for a name in an address, which never contains the name."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
