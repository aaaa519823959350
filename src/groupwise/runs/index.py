"""Index of the files of completions, group by group: the lines of `rollouts/index.jsonl`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from math import isfinite
from statistics import fmean, pstdev
from typing import Any, Literal, Self

from groupwise.runs.atomic import write_file
from groupwise.runs.directory import RunDirectory
from groupwise.runs.ledger import Lines
from groupwise.types import FinishReason, Outcome

SCHEMA_NUMBER = 1  # schema of the files of completions and of their index
Flat = Literal["right", "wrong", "equal", "failed"]
"""Reason why a group has no signal: all judged completions are correct, none is, their rewards are equal otherwise,
or none was judged."""


def flat_because(outcomes: Sequence[Outcome], rewards: Sequence[float | None]) -> Flat | None:
    """Return the reason why no two judged completions earned different rewards; None where two did.

    >>> flat_because([Outcome.CORRECT, Outcome.CRASHED], [1.0, None])
    'right'
    """
    judged = [(o, r) for o, r in zip(outcomes, rewards, strict=True) if o.judged and r is not None]
    if len({reward for _, reward in judged}) > 1:
        return None
    correct = [outcome is Outcome.CORRECT for outcome, _ in judged]
    if not judged:
        return "failed"
    return "right" if all(correct) else "equal" if any(correct) else "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntry:
    """One recorded group, without texts and tokens. Means are over judged completions and None where there is none."""

    problem: str
    difficulty: str
    row_group: int  # row group of the file that holds it, or its first row where another program merged groups
    first_row: int  # its first row in the file
    num_completions: int
    num_judged: int
    num_correct: int
    num_failed: int
    num_truncated: int
    num_trained: int | None  # completions that the step's updates read; None where that was not recorded
    reward: float | None  # mean
    reward_std: float | None  # population standard deviation
    length: float | None  # mean of sampled tokens over all completions; None where they were not counted
    longest: int | None
    advantage: float | None  # largest absolute advantage of a completion; None where there is none (evaluations)
    flat: Flat | None  # reason why it has no signal; None where it has one
    discarded: str | None  # reason why it was sampled and not trained on, as in `row.Discarded`; None where it was kept

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], row_group: int, first_row: int) -> Self:
        """Return the entry of a group's rows, which have `LIGHT` columns."""
        outcomes = [Outcome(row["outcome"]) for row in rows]
        rewards = [reward if (reward := row["reward"]) is not None and isfinite(reward) else None for row in rows]
        judged = [reward for reward in rewards if reward is not None]
        trained = [row["trained"] for row in rows if row.get("trained") is not None]
        advantages = [abs(row["advantage"]) for row in rows if row["advantage"] is not None]
        lengths = [row["num_tokens"] for row in rows if row.get("num_tokens") is not None]
        return cls(
            problem=rows[0]["problem"], difficulty=rows[0]["difficulty"] or "", row_group=row_group,
            first_row=first_row, num_completions=len(rows), num_judged=sum(outcome.judged for outcome in outcomes),
            num_correct=outcomes.count(Outcome.CORRECT), num_failed=sum(outcome.failed for outcome in outcomes),
            num_truncated=sum(row["finish_reason"] == FinishReason.LENGTH for row in rows),
            num_trained=sum(trained) if len(trained) == len(rows) else None, reward=fmean(judged) if judged else None,
            reward_std=pstdev(judged) if judged else None, length=fmean(lengths) if lengths else None,
            longest=max(lengths, default=None), advantage=max(advantages, default=None),
            flat=flat_because(outcomes, rewards), discarded=rows[0].get("discarded"),
        )  # fmt: skip

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Self:
        """Read a line of the index. Raises ValueError: it has other keys, or a value of another type."""
        names = {field.name for field in fields(cls)}
        if facts.keys() != names:
            raise ValueError(f"an entry has the keys {', '.join(sorted(facts))}")
        entry = cls(**facts)
        counts = (entry.row_group, entry.first_row, entry.num_completions)
        if not isinstance(entry.problem, str) or not all(type(n) is int and n >= 0 for n in counts):
            raise ValueError("an entry has no problem, or no place in its file")
        return entry

    def facts(self) -> dict[str, Any]:
        return asdict(self)


LIGHT = (
    "problem", "difficulty", "outcome", "finish_reason", "reward", "advantage", "num_tokens", "trained", "discarded",
)  # fmt: skip
"""Columns that an entry is made of; none holds a text of a model or a token."""


def entries(rows: Iterable[Mapping[str, Any]], row_groups: Sequence[int]) -> list[GroupEntry]:
    """Return the entries of a whole file: its rows with `LIGHT` columns, and the sizes of its row groups."""
    ends = [sum(row_groups[: i + 1]) for i in range(len(row_groups))]
    collected: list[GroupEntry] = []
    first = 0
    for _, group in groupby(rows, lambda row: row["problem"]):
        members = list(group)
        if not isinstance(members[0]["problem"], str):
            raise ValueError("a completion has no problem")
        place = next(i for i, end in enumerate(ends) if first < end)
        collected.append(GroupEntry.of(members, place, first))
        first += len(members)
    return collected


_NUMBERED = re.compile(r"(?:dev-)?step-(\d+)")


class Index:
    """The index of a working run: lines of steps after its checkpoint are forgotten, for they are done again."""

    def __init__(self, run: RunDirectory, done: int, keep_files: bool = False) -> None:
        """Open it after `done` steps: files that an interrupted run wrote of later ones are deleted."""
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
        if name in self._names:
            others = [line for _, line in Lines(self._run.index.path).read()[0] if line.get("name") != name]
            self._write(others)
        self._names.add(name)
        size = self._run.evaluations(name).stat().st_size
        self._run.index.append(
            {"schema": SCHEMA_NUMBER, "name": name, "bytes": size, "groups": [group.facts() for group in groups]}
        )

    def _write(self, lines: Sequence[object]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
        write_file(self._run.index.path, text.encode())
