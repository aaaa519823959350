"""Tables of docs/compared.md."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/compared.md").read_text(encoding="utf-8")
THEIRS_ONLY = "## What they have and we lack"
OURS_ONLY = "## What only Groupwise has"
DEFAULTS = "## Defaults side by side"


def cells(heading: str, column: int) -> list[str]:
    """Return a column of the table below a heading, without its title."""
    below = PAGE.split(f"{heading}\n", 1)[1].split("\n#", 1)[0]
    _, _, *rows = (line for line in below.splitlines() if line.startswith("|"))
    return [row.strip("|").split(" | ")[column] for row in rows]


def quoted(text: str) -> list[str]:
    """Return what stands between backquotes."""
    return re.findall(r"`([^`]+)`", text)
