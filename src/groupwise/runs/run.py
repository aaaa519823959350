"""A run directory as tables of its steps, groups, completions and evaluations; no model and no torch.

Run.open("runs/arithmetic").steps().to_pandas().plot(x="step", y="reward")
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from groupwise.errors import ConfigError
from groupwise.runs.directory import RunDirectory, find_run, flattened
from groupwise.runs.records import At, Records
from groupwise.runs.rollouts import SCHEMA
from groupwise.runs.row import LIGHT, GroupEntry

SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with named columns. Polars and DuckDB read it as it is, by Arrow's stream protocol."""

    arrow: pa.Table

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Self:
        names = list(dict.fromkeys(name for row in rows for name in row))
        return cls(pa.table({name: [row.get(name) for row in rows] for name in names}))

    @property
    def columns(self) -> list[str]:
        return list(self.arrow.column_names)

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.arrow.to_pylist())

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.columns:
            raise KeyError(f"there is no column {column!r}; there are {', '.join(self.columns)}")
        values: list[Any] = self.arrow[column].to_pylist()
        return values

    def to_arrow(self) -> pa.Table:
        return self.arrow

    def to_pandas(self) -> Any:
        try:
            return self.arrow.to_pandas()
        except ModuleNotFoundError:
            raise ConfigError(
                "to_pandas() needs pandas, which is not installed: `pip install pandas`, or use to_arrow()"
            ) from None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.arrow.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:

        def cell(value: Any) -> str:
            text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
            return escape(text if len(text) <= 80 else f"{text[:79]}…")

        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        rows = self.arrow.slice(0, SHOWN_ROWS).to_pylist()
        body = "".join(f"<tr>{''.join(f'<td>{cell(value)}</td>' for value in row.values())}</tr>" for row in rows)
        more = f"<p>{len(self) - len(rows)} more rows</p>" if len(self) > len(rows) else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


Line = Mapping[str, Any]
_OF_A_GROUP = ("step", "problem", "difficulty", "question", "reference")
"""Columns that are the same for all completions of a group."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """One run, as its directory tells it. What is not there yet is empty or None, never a zero."""

    directory: RunDirectory

    @classmethod
    def open(cls, path: str | Path) -> Self:
        return cls(find_run(Path(path)))

    @property
    def records(self) -> Records:
        """The reader below: what was recorded, one group or completion at a time, and what of it is damaged."""
        return Records.of(self.directory)

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def config(self) -> dict[str, Any]:
        """The resolved recipe as nested dictionaries; `load_recipe(run.config)` makes a recipe of it."""
        return self.records.config

    @property
    def finished(self) -> bool:
        """True where the run has nothing left to do."""
        return self.records.finished

    @property
    def num_steps(self) -> int:
        steps = self.records.intact().metrics()
        return 1 + int(steps[-1]["step"]) if steps else 0

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoints that are there, oldest first; `load_policy` reads one."""
        return [self.directory.checkpoint(step) for step in self.directory.steps()]

    @property
    def best(self) -> Path | None:
        """Link to the checkpoint with the best dev result; None before the first dev evaluation."""
        return self.records.best

    def metrics(self) -> Table:
        """metrics.jsonl: a row for each line, in the order in which they were written."""
        return Table.of([_flat(line) for line in self.records.intact().lines()])

    def steps(self) -> Table:
        """A row for each training step: reward, correct (shares), entropy (nats), length (tokens), times (s)."""
        return Table.of([_flat(line) for line in self.records.intact().metrics()])

    def evaluations(self) -> Table:
        """A row for each evaluation, by steps done: `name`, `kind`, `step`, pass@1 with its 95 % interval, length."""
        records = self.records.intact()
        lines = [line for kind in records.kinds() if kind not in ("step", "theirs") for line in records.metrics(kind)]
        return Table.of([self._evaluation(line) for line in sorted(lines, key=lambda line: int(line["step"]))])

    def _evaluation(self, line: Line) -> dict[str, Any]:
        name = f"dev-step-{line['step']:06d}" if line["kind"] == "dev" else line["kind"]
        row = {"name": name if self.directory.rollouts(name).exists() else None, **_flat(line)}
        if isinstance(estimate := row.pop("pass_at_1", None), list):
            row |= dict(zip(("pass_at_1", "pass_at_1_low", "pass_at_1_high"), estimate, strict=True))
        return row

    def completions(self, at: int | str | None = None, problem: str | None = None) -> Table:
        """A row for each completion, with tokens, log-probabilities (nats), verdict, reward parts and advantage.

        Args:
            at: a training step (0-based), or the name of an evaluation, such as `test-after`; None: all training steps.
            problem: only those of the problem with this id.

        Raises:
            ConfigError: nothing was recorded there; says what is.
            DataError: a file cannot be read.
        """
        records = self.records
        places: list[At] = list(records.steps()) if at is None else [at]
        tables = [records.table(place, SCHEMA.names).cast(SCHEMA) for place in places]
        table = pa.concat_tables(tables or [SCHEMA.empty_table()])
        if problem is None:
            return Table(table)
        rows = table.filter(pc.equal(table["problem"], problem))
        if not len(rows):
            problems = ", ".join(dict.fromkeys(table["problem"].to_pylist()))
            raise ConfigError(f"{self.path} has no completions of problem {problem!r} there; there are {problems}")
        return Table(rows)

    def groups(self, at: int | str | None = None) -> Table:
        """A row for each group of completions of one prompt: how many, what they earned, how long they are."""
        rows = self.completions(at).arrow.select(list(dict.fromkeys([*_OF_A_GROUP, *LIGHT]))).to_pylist()
        table = []
        for _, same in groupby(rows, lambda row: (row["step"], row["problem"])):
            group = list(same)
            entry = GroupEntry.of(group, 0, 0)
            table.append({
                **{name: group[0][name] for name in _OF_A_GROUP}, "num_completions": entry.num_completions,
                "num_judged": entry.num_judged,
                "correct": entry.num_correct / entry.num_judged if entry.num_judged else None, "reward": entry.reward,
                "reward_std": entry.reward_std, "length": entry.length, "signal": entry.flat is None,
                "discarded": entry.discarded,
            })  # fmt: skip
        return Table.of(table)

    def __repr__(self) -> str:
        return f"Run({self.path}: {self._state()})"

    def _state(self) -> str:
        config = self.config
        state = "finished" if self.finished else "unfinished"
        return f"{config.get('algorithm')}, {self.num_steps} of {config['run']['num_steps']} steps, {state}"

    def _repr_html_(self) -> str:
        columns = ("name", "step", "pass_at_1", "pass_at_1_low", "pass_at_1_high", "length", "truncated")
        table = self.evaluations().arrow
        summary = Table(table.select([name for name in columns if name in table.column_names]))
        heading = f"<p><b>{escape(str(self.path))}</b>: {escape(self._state())}</p>"
        return heading + (summary._repr_html_() if len(summary) else "")


def _flat(line: Line) -> dict[str, Any]:
    pairs = (pair for name, value in line.items() for pair in (value.items() if name == "parts" else [(name, value)]))
    return flattened(dict(pairs))
