"""Rows of labelled steps: TRL's stepwise columns `prompt`, `completions` (the steps) and `labels`, with provenance.

A label is true or false, or the chance from 0 to 1 that the step is right; null: nobody knows, and nothing is learnt
from it. Joined, the steps are the completion.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.runs.jsonl import read_jsonl


@dataclass(frozen=True, slots=True)
class StepRow:
    """A completion cut into steps, with what is known of each."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]
    """Of each step, the chance from 0 to 1 that it is right; None where nobody knows."""
    problem: str = ""
    """Id of the problem; empty where the source has none."""
    split: str = "train"
    """Split of the problem."""
    difficulty: str = ""
    final_answer_correct: bool | None = None
    """Whether the answer is right; None where nobody knows."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the labels come from: method, completer, rollouts and others, as JSON values."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.steps):
            raise DataError(f"{len(self.labels)} labels for {len(self.steps)} steps: one for each is allowed")
        if not self.steps or not all(self.steps):
            raise DataError("no step, or a step without text: at least one step is needed, each with text")
        for label in self.labels:
            if label is not None and not (math.isfinite(label) and 0 <= label <= 1):
                raise DataError(f"the label {label}: true, false, null and numbers from 0 to 1 are allowed")

    @property
    def first_error(self) -> int | None:
        """Index of the first step that is rather wrong than right; None without one."""
        return first_wrong(self.labels)

    def record(self) -> dict[str, Any]:
        """The row as JSON values, as `read_step_rows` reads it."""
        return {
            "prompt": self.prompt, "completions": list(self.steps), "labels": list(self.labels),
            "problem": self.problem, "split": self.split, "difficulty": self.difficulty,
            "final_answer_correct": self.final_answer_correct, "first_error": self.first_error, **self.provenance,
        }  # fmt: skip


def first_wrong(labels: Sequence[float | None]) -> int | None:
    """Index of the first label below 1/2; None without one.

    >>> first_wrong([1.0, None, 0.2])
    2
    """
    return next((i for i, label in enumerate(labels) if label is not None and label < 0.5), None)


OWN = frozenset(StepRow("p", ("s",), (1.0,)).record())
"""Columns that are not provenance."""


def read_step_rows(path: str | Path) -> list[StepRow]:
    """Read a file of labelled steps, one JSON object a line.

    Raises:
        DataError: names the file, the line and what is wrong with it.
    """
    rows = [step_row(record.fields, record.place) for record in read_jsonl(path)]
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def step_row(record: Mapping[str, Any], where: str) -> StepRow:
    """A row of a record with TRL's columns; `where` begins what an error says."""
    prompt, steps, labels = (record.get(key) for key in ("prompt", "completions", "labels"))
    if not isinstance(prompt, str) or not isinstance(steps, list) or not isinstance(labels, list):
        raise DataError(f"{where}: prompt (text), completions (a list of steps) and labels (a list) are needed")
    if not all(isinstance(step, str) for step in steps):
        raise DataError(f"{where}: every step must be a text")
    try:
        return StepRow(
            prompt, tuple(steps), tuple(_label(label) for label in labels), str(record.get("problem", "")),
            str(record.get("split", "train")), str(record.get("difficulty", "")), record.get("final_answer_correct"),
            {key: value for key, value in record.items() if key not in OWN},
        )  # fmt: skip
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _label(label: object) -> float | None:
    """A number stays the number it is: 0.7 is no 0."""
    if label is None or isinstance(label, bool | int | float):
        return None if label is None else float(label)
    raise DataError(f"the label {label!r}: true, false, null and numbers from 0 to 1 are allowed")


def check_training_rows(rows: Sequence[StepRow], path: str) -> None:
    """Check that a model may learn from the rows.

    Raises:
        DataError: a row is of a held-out problem, or no step has a label.
    """
    held_out = [row for row in rows if row.split != "train"]
    if held_out:
        raise DataError(
            f"{path}: {len(held_out)} rows are of the {held_out[0].split} split (the first: problem "
            f"{held_out[0].problem or held_out[0].prompt[:60]!r}); only rows of the training split may be learnt from"
        )
    if not any(label is not None for row in rows for label in row.labels):
        raise DataError(f"{path}: no step has a label")
