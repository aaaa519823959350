"""The row of every evaluation: one completion with its problem and its verdict, the same from memory and from disk."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.types import FinishReason, Outcome, ScoredGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One completion: what every measure, every filter and every page reads."""

    problem: str
    """Id of the problem."""
    difficulty: str
    language: str | None
    """Of the problem; None where it was not recorded."""
    question: str
    reference: str
    open_ended: bool
    """Whether no rule can judge an answer to the problem."""
    prefill: str
    """What the prompt already wrote of the answer."""
    sample: int
    text: str
    finish_reason: FinishReason
    outcome: Outcome
    answer: str | None
    evidence: str
    num_tokens: int
    """Tokens that the policy sampled."""
    num_read: int
    """All tokens of the completion, those that were put in included."""
    num_insertions: int = 0
    """Places at which something was put in: the results of tools."""


def rows_of(groups: Iterable[ScoredGroup]) -> tuple[Row, ...]:
    """The rows of scored groups."""
    return tuple(
        Row(
            problem=problem.id,
            difficulty=problem.difficulty,
            language=problem.language,
            question=problem.question,
            reference=problem.reference,
            open_ended=problem.open_ended,
            prefill=group.group.prompt.prefill,
            sample=completion.sample_index,
            text=completion.text,
            finish_reason=completion.finish_reason,
            outcome=verdict.outcome,
            answer=verdict.answer,
            evidence=verdict.evidence,
            num_tokens=completion.num_tokens,
            num_read=len(completion.token_ids),
            num_insertions=len(completion.insertions),
        )
        for group in groups
        for problem in [group.group.prompt.problem]
        for completion, verdict in zip(group.group.completions, group.verdicts, strict=True)
    )


COLUMNS = (
    "problem", "difficulty", "language", "question", "reference", "open_ended", "prefill", "sample", "text",
    "finish_reason", "outcome", "answer", "evidence", "sampled",
)  # fmt: skip
"""Columns of a file of rollouts that rows are made of; the token arrays, which are most of it, stay on disk."""


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a file of rollouts.

    Raises:
        DataError: the file is not one that a run wrote.
    """
    try:
        table = pq.read_table(path, columns=[*COLUMNS, "token_ids"])
        lengths = pc.list_value_length(table["token_ids"])
        records = table.select(COLUMNS).append_column("num_read", lengths).to_pylist()
        return tuple(_row(**record) for record in records)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"the rollouts {path} cannot be read: {error}") from None


def _row(sampled: list[bool] | None, **record: Any) -> Row:
    record["finish_reason"], record["outcome"] = FinishReason(record["finish_reason"]), Outcome(record["outcome"])
    if sampled is None:  # every token
        return Row(**record, num_tokens=record["num_read"])
    insertions = sum(before and not now for before, now in pairwise([True, *sampled]))
    return Row(**record, num_tokens=sum(sampled), num_insertions=insertions)
