"""The files of the pages, by name: what is not in this table is not handed out."""

from functools import cache
from importlib import resources

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@cache
def pages() -> dict[str, tuple[str, bytes]]:
    """Type and content of every file, by its name."""
    folder = resources.files("groupwise.explorer") / "static"
    files = sorted((file for file in folder.iterdir()), key=lambda file: file.name)
    found = {}
    for file in files:
        kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
        if kind:
            found[file.name] = (kind, file.read_bytes())
    return found
