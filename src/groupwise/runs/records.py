"""The one reader of what a run recorded; it needs neither torch nor a model.

    run = Records.open("runs/arithmetic")
    run.group(3, "arithmetic/23x17").completions  # one row group of one file
    run.metrics()                                 # lines of metrics.jsonl: scalars and distributions of every step

Everything is read when it is asked for, and again when its file has changed. What cannot be read is left out and named
in `damage`. No path comes from the contents of a file, and links that lead out of the run directory are not followed.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupwise.config import read_toml
from groupwise.errors import ConfigError, DataError, told_as
from groupwise.runs.directory import RunDirectory, find_run
from groupwise.runs.ledger import TORN, Damage, LineFile, stamp_of
from groupwise.runs.rollouts import LISTED, MOST_LISTED_TEXT, SCHEMA, read_columns, read_rows, unpacked_list
from groupwise.runs.row import LIGHT, OF_TOKENS, GroupEntry, GroupRecord, Row, entries

At = int | str  # a training step (0-based), or the name of an evaluation
Line = Mapping[str, Any]
Stamp = tuple[int, int]  # of a file; what was made of it is made again where it is another one
_STEP = re.compile(r"step-(\d{6,})")
_ENTRIES_KEPT = 256  # files whose entries are remembered
_ROWS_KEPT = 32  # evaluations whose rows are remembered; those of steps are not


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: its line in metrics.jsonl and its completions."""

    step: int  # finished steps behind the weights (of a test evaluation: steps of the whole run)
    line: Line
    rows: tuple[Row, ...]  # empty where the file of completions is not there


@dataclass(slots=True)
class Records:
    """Recorded files of one run. Make it with `open`; it may be kept for as long as the run is looked at."""

    directory: RunDirectory
    _index: LineFile
    _metrics: LineFile
    _ledger: LineFile
    _found: dict[str, Damage] = field(default_factory=dict)
    _entries: Callable[[Path, Stamp], list[GroupEntry]] = field(init=False)
    _rows: Callable[[Path, Stamp], tuple[Row, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._entries = lru_cache(_ENTRIES_KEPT)(self._read_entries)
        self._rows = lru_cache(_ROWS_KEPT)(lambda path, stamp: read_rows(path))

    @classmethod
    def open(cls, path: str | Path) -> Self:
        return cls.of(find_run(Path(path)))

    @classmethod
    def of(cls, run: RunDirectory) -> Self:
        return cls(run, run.index, run.metrics, run.ledger)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        return read_toml(self.directory.config)

    @property
    def environment(self) -> Mapping[str, Any]:
        """The versions and the machine of the run; empty where environment.json is not there."""
        path = self.path / "environment.json"
        with told_as(DataError, f"{path} cannot be read", ValueError):
            environment: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return environment

    @property
    def finished(self) -> bool:
        return self.directory.finished.exists()

    @property
    def planned_steps(self) -> int:
        table = self.config.get("run")
        if not isinstance(table, Mapping) or not isinstance(table.get("num_steps"), int):
            raise ConfigError(f"{self.directory.config} has no run.num_steps: it is not the recipe of a run")
        return int(table["num_steps"])

    @property
    def best(self) -> Path | None:
        return self.directory.best if self.directory.best.exists() else None

    @property
    def damage(self) -> list[Damage]:
        """Unreadable files and lines: of the line files as they are now, and of the files of completions asked for."""
        lines = [fault for file in (self._metrics, self._ledger, self._index) for fault in file.read()[1]]
        return [*lines, *self._found.values()]

    def metrics(self, kind: str = "step") -> list[Line]:
        """Return lines of metrics.jsonl of a kind (`step`, `dev`, `test-before`, ...), by step, and each reading's."""
        lines: dict[tuple[int, str], Line] = {}
        newest = -1
        for number, line in self._metrics.read()[0]:
            if line.get("kind", "step") != kind:
                continue
            step, name = line.get("step"), self._metrics.path.name
            if not isinstance(step, int):
                self._note(Damage(name, f"its step is {step!r}", number))
                continue
            at = step, str(line.get("reading", ""))  # a benchmark may read its answers in several ways
            if kind == "step" and step <= newest:
                fault = "stands twice, and the later counts" if at in lines else f"comes after step {newest}"
                self._note(Damage(name, f"its step {step} {fault}", number))
            if odd := [name for name in _TABLES if not isinstance(line.get(name, {}), Mapping)]:
                self._note(Damage(name, f"its {odd[0]} is no table", number))
                line = {key: value for key, value in line.items() if key not in odd}
            lines[at], newest = line, max(step, newest)
        return [line for _, line in sorted(lines.items())]

    def lines(self) -> list[Line]:
        return [line for _, line in self._metrics.read()[0]]

    def intact(self) -> Self:
        """Return these records if every line of metrics.jsonl can be read; a last line may be still in writing."""
        lines, damage = self._metrics.read()
        steps = [(number, line.get("step")) for number, line in lines]
        stepless = [Damage("", f"its step is {step!r}", number) for number, step in steps if not isinstance(step, int)]
        if broken := [fault for fault in (*damage, *stepless) if fault.what != TORN]:
            raise DataError(f"{self._metrics.path} cannot be read: line {broken[0].line}: {broken[0].what}")
        return self

    def kinds(self) -> list[str]:
        return list(dict.fromkeys(str(line.get("kind", "step")) for _, line in self._metrics.read()[0]))

    def ledger(self) -> list[Line]:
        return [line for _, line in self._ledger.read()[0]]

    @property
    def dev(self) -> list[Evaluation]:
        return [self._evaluation(f"dev-step-{line['step']:06d}", line) for line in self.metrics("dev")]

    @property
    def best_step(self) -> int | None:
        return next((int(line["step"]) for line in reversed(self.metrics("dev")) if line.get("best")), None)

    @property
    def test_before(self) -> Evaluation | None:
        return self._test("test-before")

    @property
    def test_after(self) -> Evaluation | None:
        return self._test("test-after")

    def _test(self, name: str) -> Evaluation | None:
        lines = self.metrics(name)
        return self._evaluation(name, lines[-1]) if lines else None

    def _evaluation(self, name: str, line: Line) -> Evaluation:
        # only evaluations with a line are read: a file without one was written just before the run was killed
        there = self.directory.rollouts(name).exists()
        return Evaluation(int(line["step"]), line, self.rows(name) if there else ())

    def steps(self) -> list[int]:
        return sorted(int(match[1]) for name in self._names() if (match := _STEP.fullmatch(name)))

    def evaluations(self) -> list[str]:
        return sorted(name for name in self._names() if not _STEP.fullmatch(name))

    def groups(self, at: At) -> list[GroupEntry]:
        """Return the groups recorded there, discarded ones too; a file that cannot be read is named in `damage`."""
        path = self._file(at)
        try:
            return self._entries(path, stamp_of(path))
        except (DataError, OSError) as error:
            self._note(Damage(f"rollouts/{path.name}", str(error)))
        except (ValueError, TypeError, KeyError) as error:
            self._note(Damage(f"rollouts/{path.name}", f"the rollouts {path} cannot be read: {error}"))
        return []

    def _read_entries(self, path: Path, stamp: Stamp) -> list[GroupEntry]:
        if found := self._indexed(path):
            return found
        rows = read_columns(path, LIGHT).to_pylist()
        with pq.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        return entries(rows, sizes)

    def rows(self, at: At) -> tuple[Row, ...]:
        """Return the completions recorded there, those of discarded groups included, without their tokens."""
        path = self._file(at)
        return read_rows(path) if isinstance(at, int) else self._rows(path, stamp_of(path))

    def group(self, at: At, problem: str, tokens: bool = True) -> GroupRecord:
        """Return one group with its completions: one row group is read."""
        groups, path = self.groups(at), self._file(at)
        entry = next((entry for entry in groups if entry.problem == problem), None)
        if not groups and (found := self._found.get(f"rollouts/{path.name}:None")):
            raise DataError(f"the rollouts {path} cannot be read: {found.what}")
        if entry is None:
            there = ", ".join(entry.problem for entry in groups) or "none"
            raise ConfigError(f"{self.path} has no completions of problem {problem!r} there; there are {there}")
        columns = [name for name in SCHEMA.names if tokens or name not in OF_TOKENS or name == "sampled"]
        table = read_columns(path, columns, entry.row_group)  # another program may have merged groups
        records = table.filter(pc.equal(table["problem"], problem)).to_pylist()
        if not records:
            raise DataError(f"the rollouts {path} have no rows of {problem!r} where the index says: it was replaced")
        with told_as(DataError, f"the rollouts {path} cannot be read", KeyError, TypeError, ValueError):
            rows = sorted(map(Row.of, records), key=lambda row: row.sample)
        of_prompt: dict[str, Any] = {name: records[0][name] for name in _OF_THE_PROMPT}
        return GroupRecord(entry=entry, completions=tuple(rows), **of_prompt)

    def completion(self, at: At, problem: str, sample: int) -> Row:
        """Return one completion with all that was recorded of it."""
        by_sample = {completion.sample: completion for completion in self.group(at, problem).completions}
        if sample not in by_sample:
            there = ", ".join(map(str, by_sample))
            raise ConfigError(f"{self.path} has no sample {sample} of problem {problem!r} there; there are {there}")
        return by_sample[sample]

    def table(self, at: At, columns: Sequence[str]) -> pa.Table:
        """Return chosen columns of all completions there; null where not recorded."""
        if unknown := [name for name in columns if name not in SCHEMA.names]:
            raise ConfigError(f"there is no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")
        return read_columns(self._file(at), columns)

    def listed(self, at: At) -> dict[str, list[Any]]:
        """Return the columns of `LISTED` of all completions there, texts cut short, for a list."""
        path = self._file(at)
        told = told_as(DataError, f"the rollouts {path} cannot be read", OSError, pa.ArrowException, ValueError)
        with told, pq.ParquetFile(path) as file:
            if found := unpacked_list(file.metadata.metadata, file.metadata.num_rows):
                return found
        table = read_columns(path, list(LISTED))  # another program wrote it
        texts = pc.utf8_slice_codeunits(pc.fill_null(table["text"], ""), 0, MOST_LISTED_TEXT)
        return {**{name: table[name].to_pylist() for name in LISTED}, "text": texts.to_pylist()}

    def _names(self) -> list[str]:
        folder = self.path / "rollouts"
        names = []
        inside = folder.resolve()
        with os.scandir(folder) if folder.is_dir() else nullcontext(()) as files:
            for file in files:
                if file.name.startswith(".") or not file.name.endswith(".parquet"):
                    continue
                leads_out = file.is_symlink() and Path(file).resolve().parent != inside
                if leads_out or not file.is_file():
                    self._note(Damage(f"rollouts/{file.name}", "it is no file of this run: links are not followed"))
                else:
                    names.append(file.name.removesuffix(".parquet"))
        return names

    def _file(self, at: At) -> Path:
        name = f"step-{at:06d}" if isinstance(at, int) else at
        if name in self._names():
            return self.directory.rollouts(at)
        steps = self.steps()
        there = [f"steps {steps[0]} to {steps[-1]}"] if steps else []
        recorded = ", ".join([*there, *self.evaluations()]) or "none"
        raise ConfigError(f"{self.path} has no completions of {name}; recorded are {recorded}")

    def _indexed(self, path: Path) -> list[GroupEntry] | None:
        for number, line in reversed(self._index.read()[0]):
            if line.get("name") != path.stem:
                continue
            try:
                return (
                    [GroupEntry.read(facts) for facts in line["groups"]]
                    if line["bytes"] == path.stat().st_size
                    else None
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self._note(Damage("rollouts/index.jsonl", f"it is no line of an index: {error}", number))
                return None
        return None

    def _note(self, damage: Damage) -> None:
        self._found[f"{damage.file}:{damage.line}"] = damage


_OF_THE_PROMPT = ("prompt", "prompt_token_ids", "prompt_token_ends")
_TABLES = ("parts", "distributions", "theirs")  # keys of a line that hold numbers by name
