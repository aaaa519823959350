"""The one reader of what a run recorded: for pages, the doctor, and whoever looks at a run. No torch, no model.

    run = Records.open("runs/arithmetic")
    run.steps()                                   # recorded steps: [0, 1, 2, ...]
    run.groups(3)                                 # the step's groups, from the index alone
    run.group(3, "arithmetic/23x17").completions  # one row group of one file
    run.completion(3, "arithmetic/23x17", 0).ratio
    run.metrics()                                 # lines of metrics.jsonl: scalars and distributions of every step
    run.damage                                    # what could not be read so far, by name

`at` is a training step (0-based) or the name of an evaluation, such as `dev-step-000040`. Everything is read when it is
asked for, and again when its file has changed, so a run that is still being written grows under the reader's eyes. What
cannot be read is left out and named in `damage`; asking for it by name is an error. Files of every earlier schema open.
No path comes from the contents of a file, and links that lead out of the run directory are not followed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupwise.config import read_toml
from groupwise.errors import ConfigError, DataError
from groupwise.runs import listed
from groupwise.runs.completion import OF_TOKENS, CompletionRecord, GroupRecord
from groupwise.runs.directory import RunDirectory, find_run
from groupwise.runs.index import LIGHT, GroupEntry, entries
from groupwise.runs.rollouts import SCHEMA, today
from groupwise.runs.tolerant import Damage, Lines

At = int | str
"""A training step (0-based), or the name of an evaluation."""
Line = Mapping[str, Any]
"""One line of metrics.jsonl or of the ledger."""
_STEP = re.compile(r"step-(\d{6,})")
_STAMP_LIMIT = 256
"""Files whose entries are remembered."""


@dataclass(slots=True)
class Records:
    """What one run recorded. Make it with `open`; it may be kept for as long as the run is looked at."""

    directory: RunDirectory
    """Paths of the run's files."""
    _index: Lines
    _metrics: Lines
    _ledger: Lines
    _found: dict[str, Damage] = field(default_factory=dict)
    _entries: dict[str, tuple[tuple[int, int], list[GroupEntry]]] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The records of a run.

        Raises:
            ConfigError: there is no run at this path.
        """
        return cls.of(find_run(Path(path)))

    @classmethod
    def of(cls, run: RunDirectory) -> Self:
        """The records of a run whose directory is known."""
        return cls(run, Lines(run.index.path), Lines(run.metrics.path), Lines(run.ledger.path))

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        """The resolved recipe as nested dictionaries, in today's keys.

        Raises:
            ConfigError: config.toml cannot be read.
        """
        return read_toml(self.directory.config)

    @property
    def finished(self) -> bool:
        """True where the run has nothing left to do."""
        return self.directory.finished.exists()

    @property
    def damage(self) -> list[Damage]:
        """What could not be read: the line files as they are now, and every file of completions that was asked for."""
        lines = [one for file in (self._metrics, self._ledger, self._index) for one in file.read()[1]]
        return [*lines, *self._found.values()]

    # ------------------------------------------------------------------------------------------------- scalars

    def metrics(self, kind: str = "step") -> list[Line]:
        """Lines of metrics.jsonl of a kind (`step`, `dev`, `test-before`, ...), by step.

        A step that was done again after a resume counts once, as it was done last. A line without a step is damage.
        """
        lines: dict[int, Line] = {}
        for number, line in self._metrics.read()[0]:
            if line.get("kind", "step") != kind:
                continue
            if not isinstance(step := line.get("step"), int):
                self._note(Damage(self._metrics.path.name, f"its step is {step!r}", number))
                continue
            lines[step] = line
        return [line for _, line in sorted(lines.items())]

    def kinds(self) -> list[str]:
        """The kinds of lines in metrics.jsonl, in the order in which they first occur."""
        return list(dict.fromkeys(str(line.get("kind", "step")) for _, line in self._metrics.read()[0]))

    def ledger(self) -> list[Line]:
        """The facts of the ledger, in order; `RunDirectory.ledger.check` follows its chain of hashes."""
        return [line for _, line in self._ledger.read()[0]]

    # ----------------------------------------------------------------------------------------------- completions

    def steps(self) -> list[int]:
        """Training steps with recorded completions."""
        return sorted(int(match[1]) for name in self._names() if (match := _STEP.fullmatch(name)))

    def evaluations(self) -> list[str]:
        """Names of the evaluations with recorded completions."""
        return sorted(name for name in self._names() if not _STEP.fullmatch(name))

    def groups(self, at: At) -> list[GroupEntry]:
        """The groups recorded there, discarded ones included, in the order in which they stand in the file.

        Empty, and named in `damage`, where the file cannot be read.

        Raises:
            ConfigError: nothing was recorded there; says what is.
        """
        path = self._file(at)
        try:
            stat = path.stat()
            stamp = (stat.st_size, stat.st_mtime_ns)
            if (known := self._entries.get(path.stem)) and known[0] == stamp:
                return known[1]
            found = self._indexed(path, stat.st_size) or _entries_of(path)
        except (DataError, OSError) as error:
            self._note(Damage(f"rollouts/{path.name}", str(error)))
            return []
        if len(self._entries) >= _STAMP_LIMIT:
            self._entries.pop(next(iter(self._entries)))
        self._entries[path.stem] = (stamp, found)
        return found

    def group(self, at: At, problem: str, tokens: bool = True) -> GroupRecord:
        """One group with its completions: one row group is read.

        Args:
            at: step or evaluation.
            problem: id of the problem.
            tokens: whether to read what there is of every token; without, those fields are None.

        Raises:
            ConfigError: nothing was recorded there, or not of this problem; says what is.
            DataError: the file cannot be read.
        """
        entry = self._entry(at, problem)
        columns = [name for name in SCHEMA.names if tokens or name not in OF_TOKENS]
        rows = _rows(self._file(at), entry, columns)
        completions = sorted((CompletionRecord.of(row) for row in rows), key=lambda one: one.sample)
        common: dict[str, Any] = {
            name: rows[0].get(name)
            for name in (
                "step", "question", "reference", "language", "open_ended", "prompt", "prefill", "prompt_token_ids",
                "prompt_token_ends",
            )
        }  # fmt: skip
        return GroupRecord(entry=entry, completions=tuple(completions), **common)

    def completion(self, at: At, problem: str, sample: int) -> CompletionRecord:
        """One completion with all that was recorded of it.

        Raises:
            ConfigError: it was not recorded; says what is.
            DataError: the file cannot be read.
        """
        completions = self.group(at, problem).completions
        for completion in completions:
            if completion.sample == sample:
                return completion
        there = ", ".join(str(completion.sample) for completion in completions)
        raise ConfigError(f"{self.path} has no sample {sample} of problem {problem!r} there; there are {there}")

    def table(self, at: At, columns: Sequence[str]) -> pa.Table:
        """Chosen columns of all completions there, for lists, searches and statistics; null where not recorded.

        Raises:
            ConfigError: nothing was recorded there, or a column does not exist; says what is.
            DataError: the file cannot be read.
        """
        if unknown := [name for name in columns if name not in SCHEMA.names]:
            raise ConfigError(f"there is no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")
        return _read(self._file(at), columns)

    def listed(self, at: At) -> dict[str, list[Any]]:
        """What a list shows of all completions there, a value each: the columns of `listed.COLUMNS`, texts cut short.

        Raises:
            ConfigError: nothing was recorded there; says what is.
            DataError: the file cannot be read.
        """
        path = self._file(at)
        try:
            with pq.ParquetFile(path) as file:
                metadata = file.metadata
                if found := listed.unpacked(metadata.metadata, metadata.num_rows):
                    return found
        except (OSError, pa.ArrowException, ValueError) as error:
            raise DataError(f"the rollouts {path} cannot be read: {error}") from None
        table = _read(path, listed.COLUMNS)  # of an earlier version
        texts = pc.utf8_slice_codeunits(pc.fill_null(table["text"], ""), 0, listed.MOST_TEXT)
        return {**{name: table[name].to_pylist() for name in listed.COLUMNS}, "text": texts.to_pylist()}

    # ------------------------------------------------------------------------------------------------- inside

    def _names(self) -> list[str]:
        folder = self.path / "rollouts"
        names = []
        for path in folder.glob("*.parquet"):
            if path.name.startswith("."):
                continue
            if path.resolve().parent != folder.resolve() or not path.is_file():
                self._note(Damage(f"rollouts/{path.name}", "it is no file of this run: links are not followed"))
            else:
                names.append(path.stem)
        return names

    def _file(self, at: At) -> Path:
        name = f"step-{at:06d}" if isinstance(at, int) else at
        if name in self._names():
            return self.path / "rollouts" / f"{name}.parquet"
        steps = self.steps()
        there = [f"steps {steps[0]} to {steps[-1]}"] if steps else []
        recorded = ", ".join([*there, *self.evaluations()]) or "none"
        raise ConfigError(f"{self.path} has no completions of {name}; recorded are {recorded}")

    def _indexed(self, path: Path, size: int) -> list[GroupEntry] | None:
        """What the index says of a file; None where it says nothing, or speaks of another file of this name."""
        for number, line in reversed(self._index.read()[0]):
            if line.get("name") != path.stem:
                continue
            try:
                return [GroupEntry.read(facts) for facts in line["groups"]] if line["bytes"] == size else None
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self._note(Damage("rollouts/index.jsonl", f"it is no line of an index: {error}", number))
                return None
        return None

    def _entry(self, at: At, problem: str) -> GroupEntry:
        groups = self.groups(at)
        for entry in groups:
            if entry.problem == problem:
                return entry
        if not groups and (found := self._found.get(f"rollouts/{self._file(at).name}:None")):
            raise DataError(f"the rollouts {self._file(at)} cannot be read: {found.what}")
        there = ", ".join(entry.problem for entry in groups)
        raise ConfigError(f"{self.path} has no completions of problem {problem!r} there; there are {there or 'none'}")

    def _note(self, damage: Damage) -> None:
        self._found[f"{damage.file}:{damage.line}"] = damage


def _rows(path: Path, entry: GroupEntry, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a group; a row group that holds others too, as before schema 6, is read whole."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(entry.row_group, columns=_stored(columns, file.schema_arrow.names))
        rows: list[dict[str, Any]] = today(table.filter(pc.equal(table["problem"], entry.problem)), columns).to_pylist()
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise DataError(f"the rollouts {path} cannot be read: {error}") from None
    if not rows:
        raise DataError(f"the rollouts {path} have no rows of {entry.problem!r} where the index says: it was replaced")
    return rows


def _entries_of(path: Path) -> list[GroupEntry]:
    """The entries of a file that no index describes."""
    rows = _read(path, LIGHT).to_pylist()
    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    try:
        return entries(rows, sizes)
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"the rollouts {path} cannot be read: {error}") from None


def _read(path: Path, columns: Iterable[str]) -> pa.Table:
    wanted = list(columns)
    try:
        with pq.ParquetFile(path) as file:  # opened once, and in one piece: many row groups make anything else slow
            return today(file.read(columns=_stored(wanted, file.schema_arrow.names)), wanted)
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise DataError(f"the rollouts {path} cannot be read: {error}") from None


def _stored(wanted: Sequence[str], stored: Sequence[str]) -> list[str]:
    """The columns of a file that are needed for these of today's."""
    more = ("token_ids", "sampled") if "num_tokens" in wanted and "num_tokens" not in stored else ()
    return [name for name in dict.fromkeys([*wanted, *more]) if name in stored]
