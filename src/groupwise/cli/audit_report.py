"""How the pages of audits are written."""

import json
from pathlib import Path
from typing import Any

from groupwise.runs.atomic import write_file


def write_report(path: Path, html: str, found: dict[str, Any]) -> None:
    """The page, and beside it the same as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, html.encode("utf-8", errors="backslashreplace"))
    write_file(path.with_suffix(".json"), json.dumps(found, indent=1).encode())
