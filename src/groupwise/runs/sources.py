"""Copies of the user's own Python in a run directory: `sources/NAME-HASH.py`, listed in `sources/index.json`."""

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

from groupwise.runs.atomic import translated_disk_errors, write_file


def keep_sources(folder: Path, files: Sequence[Path]) -> None:
    """Copy files as they are now; a warning names one that differs from what the run had of it before."""
    if not files:
        return
    index = folder / "index.json"
    kept: list[dict[str, str]] = json.loads(index.read_text()) if index.exists() else []
    latest = {one["file"]: one["sha256"] for one in kept}
    with translated_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if latest.get(str(file)) == digest:
                continue
            if str(file) in latest:
                warnings.warn(
                    f"{file} was changed since the run began: its next steps are not those of one uninterrupted run; "
                    f"both versions are in {folder}",
                    stacklevel=2,
                )
            copy = f"{file.stem}-{digest[:8]}{file.suffix}"
            write_file(folder / copy, content)
            kept.append({"file": str(file), "sha256": digest, "copy": copy})
        write_file(index, json.dumps(kept, indent=1).encode())
