"""Writing `rollouts/index.jsonl`: one line for each file of completions, also after kill and resume."""

import json
import re
from collections.abc import Sequence

from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.index import GroupEntry
from groupwise.runs.rollouts import SCHEMA
from groupwise.runs.tolerant import Lines

_NUMBERED = re.compile(r"(?:dev-)?step-(\d+)")


class Index:
    """The index of a run that is at work: what comes after its checkpoint is forgotten, for it is done again."""

    def __init__(self, run: RunDirectory, done: int, keep_files: bool = False) -> None:
        """Begin, or go on after `done` steps: what an interrupted run wrote of later ones is deleted.

        With `keep_files` their files stay until they are written again, for they hold the results of tools.
        """
        self._run = run
        kept = [line for _, line in Lines(run.index.path).read()[0] if self._is_of(str(line.get("name")), done)]
        self._names = {str(line["name"]) for line in kept}
        if run.index.size:
            self._write(kept)
        for path in run.path.glob("rollouts/step-*.parquet"):
            if not keep_files and not self._is_of(path.stem, done):
                path.unlink()

    @staticmethod
    def _is_of(name: str, done: int) -> bool:
        number = _NUMBERED.fullmatch(name)
        return number is not None and int(number[1]) < done + name.startswith("dev-")

    def add(self, name: str, groups: Sequence[GroupEntry]) -> None:
        """Say what a file that was just written holds."""
        if name in self._names:
            others = [line for _, line in Lines(self._run.index.path).read()[0] if line.get("name") != name]
            self._write(others)
        self._names.add(name)
        size = self._run.evaluations(name).stat().st_size
        schema = int(SCHEMA.metadata[b"groupwise_schema"])
        self._run.index.append(
            {"schema": schema, "name": name, "bytes": size, "groups": [group.facts() for group in groups]}
        )

    def _write(self, lines: Sequence[object]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        write_file(self._run.index.path, text.encode())
