"""The files of a pipeline: read by its report, and by a later call that resumes it.

pipeline.toml              resolved recipe
lineage.json               which stage made what from what
stages/NAME/begun.json     fingerprint and settings of the work in hand
stages/NAME/facts.json     the result and its measurements: the same on a repeat and after a kill
stages/NAME/cost.json      seconds, which may differ (`cost`)
stages/NAME/run/           the trainer's run directory
stages/NAME/samples/       samples of a data stage, in parts
stages/NAME/data.jsonl     rows of a data stage
stages/NAME/evaluation.parquet
"""

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import CheckpointError, DataError
from groupwise.models.checkpoint import OPTIMIZER_STATE, TRAINER_STATE
from groupwise.runs.atomic import MANIFEST, sha256_of, translated_disk_errors, write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.jsonl import read_jsonl


@dataclass(frozen=True, slots=True)
class StageDirectory:
    """Paths and files of one stage."""

    path: Path

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.path / "run")

    @property
    def data(self) -> Path:
        return self.path / "data.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.parquet"

    @property
    def facts(self) -> dict[str, Any] | None:
        return _read(self.path / "facts.json")

    @property
    def begun(self) -> dict[str, Any] | None:
        """Fingerprint and settings of the work that was started here; None before."""
        return _read(self.path / "begun.json")

    @property
    def output_hash(self) -> str | None:
        return (self.facts or {}).get("output_hash")

    @property
    def cost(self) -> dict[str, Any]:
        return _read(self.path / "cost.json") or {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        with translated_disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        write_file(self.path / f"{name}.json", (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    def discard(self) -> None:
        old = self.path.with_name(f".{self.path.name}.old.tmp")
        with translated_disk_errors(self.path):
            if old.exists():
                shutil.rmtree(old)
            if self.path.exists():
                os.replace(self.path, old)
                shutil.rmtree(old)


@dataclass(frozen=True, slots=True)
class PipelineDirectory:
    """Paths and files of a pipeline."""

    path: Path

    def stage(self, name: str) -> StageDirectory:
        return StageDirectory(self.path / "stages" / name)

    @property
    def recipe(self) -> Path:
        return self.path / "pipeline.toml"

    @property
    def lineage(self) -> Path:
        return self.path / "lineage.json"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not readable ({error}); delete its stage's directory to run it again"
        ) from None
    return record


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write a file of rows, one JSON object a line, whole or not at all; returns its hash."""
    content = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
    write_file(path, content)
    return hashlib.sha256(content).hexdigest()[:16]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file: one JSON object a line, with `prompt` and `completion`."""
    rows = []
    for record in read_jsonl(path):
        if not {"prompt", "completion"} <= record.fields.keys():
            raise DataError(f"{record.place} is not an object with `prompt` and `completion`")
        rows.append(record.fields)
    return rows


def content_hash(path: Path) -> str:
    """Return 16 hex digits of the content of a model directory, or of data files, without a trainer's state.

    Data files are one, those of a directory, or those whose names fit a pattern.
    """
    if path.is_file():
        return sha256_of(path)[:16]
    held = path.iterdir() if path.is_dir() else map(Path, glob.glob(str(path), recursive=True))
    files = sorted(file for file in held if file.is_file())
    counted = [file for file in files if file.name not in (TRAINER_STATE, OPTIMIZER_STATE, MANIFEST)]
    lines = "".join(f"{file.name}:{sha256_of(file)}\n" for file in counted)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]
