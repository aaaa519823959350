"""A run directory that somebody else may have made: opened only where nothing in it leads out of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from groupwise.errors import GroupwiseError
from groupwise.explorer.wire import short_hash
from groupwise.runs.records import At, Records

READ = ("config.toml", "metrics.jsonl", "ledger.jsonl", "finished.json", "rollouts", "rollouts/index.jsonl")


class NotThereError(GroupwiseError):
    """An address of something that was not recorded."""


def unsafe(path: Path, names: Iterable[str]) -> str | None:
    """Reason not to read one of these names in a directory: it is a link out of it, or a pipe, which blocks readers."""
    inside = path.resolve()
    for name in names:
        target = (path / name).resolve()
        if target.exists() and not target.is_relative_to(inside):
            return f"{name} leads out of the directory: links are not followed, and it is not shown"
        if target.exists() and not (target.is_file() or target.is_dir()):
            return f"{name} is neither a file nor a folder: pipes and devices are not read, and it is not shown"
    return None


def tail(path: Path, depth: int) -> str:
    """The last names of a path."""
    return "/".join(path.parts[-depth:])


class Named(Protocol):
    """Something that the pages show under the last `depth` names of its path."""

    path: Path
    depth: int

    @property
    def name(self) -> str: ...


def tell_apart(shown: Sequence[Named]) -> None:
    """Names that several have get longer, a folder at a time, until they differ or the paths end."""
    for entry in shown:
        entry.depth = 1
    while same := [name for name, count in Counter(entry.name for entry in shown).items() if count > 1]:
        longer = [entry for entry in shown if entry.name in same and entry.depth < len(entry.path.resolve().parts)]
        if not longer:
            return
        for entry in longer:
            entry.depth += 1


@dataclass(slots=True)
class OpenedRun:
    """One run of those that the command was given; NotThereError where it, or a part of it, cannot be shown."""

    index: int
    path: Path
    depth: int = 1
    _records: Records | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        path = self.path.resolve()
        if path.name == "run" and path.parent.parent.name == "stages":
            return f"{tail(path.parents[2], self.depth)} · {path.parent.name}"
        return tail(path, self.depth)

    def trouble(self) -> str | None:
        if why := unsafe(self.path, READ):
            return why
        try:
            if self._records is None:
                self._records = Records.open(self.path)
        except (GroupwiseError, OSError) as error:
            return str(error)
        return None

    @property
    def records(self) -> Records:
        if trouble := self.trouble():
            raise NotThereError(trouble)
        assert self._records is not None
        return self._records

    def config(self) -> tuple[dict[str, Any], str | None]:
        try:
            return self.records.config, None
        except (GroupwiseError, OSError, UnicodeError, RecursionError) as error:
            return {}, str(error)

    def notices(self) -> list[str]:
        return list(map(str, self.records.damage[:20]))

    def places(self) -> dict[str, At]:
        records = self.records
        steps: dict[str, At] = {f"s{step}": step for step in records.steps()}
        return steps | {f"e{short_hash(name)}": name for name in records.evaluations()}

    def place(self, identifier: str) -> At:
        places = self.places()
        if identifier not in places:
            raise NotThereError(f"{self.name} has no completions at {identifier}")
        return places[identifier]

    def problem(self, at: At, identifier: str) -> str:
        for entry in self.records.groups(at):
            if short_hash(entry.problem) == identifier:
                return entry.problem
        raise NotThereError(f"{self.name} has no group {identifier} there")
