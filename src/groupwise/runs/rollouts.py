"""Completions on disk: one parquet file per training step or evaluation, each group a row group.

`groupwise.runs.row.Row` explains the columns. A value that nothing measured is null, never 0: a list as a whole, or the
entries of tokens of tools' results. `token_advantages` is null where all tokens have the same, `sampled` where the
policy drew all tokens; `steps` and `turns` are JSON.
"""

import base64
import binascii
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from groupwise.errors import DataError, told_as
from groupwise.runs.atomic import write_file
from groupwise.runs.row import OF_TOKENS, SCHEMA_NUMBER, GroupEntry, Row
from groupwise.types import AdvantagedGroup, Completion, ScoredGroup, TokenValues

SCHEMA = pa.schema(
    [
        ("step", pa.int64()), ("problem", pa.string()), ("difficulty", pa.string()), ("language", pa.string()),
        ("question", pa.string()), ("reference", pa.string()), ("open_ended", pa.bool_()), ("prompt", pa.string()),
        ("prefill", pa.string()), ("sample", pa.int64()), ("text", pa.string()), ("finish_reason", pa.string()),
        ("outcome", pa.string()), ("answer", pa.string()), ("evidence", pa.string()), ("reward", pa.float64()),
        ("reward_parts", pa.string()), ("measures", pa.string()), ("steps", pa.string()), ("advantage", pa.float64()),
        ("token_advantages", pa.list_(pa.float32())), ("policy_version", pa.int64()),
        ("prompt_token_ids", pa.list_(pa.int32())), ("token_ids", pa.list_(pa.int32())),
        ("sampling_logprobs", pa.list_(pa.float32())), ("entropy", pa.list_(pa.float32())),
        ("sampled", pa.list_(pa.bool_())), ("num_tokens", pa.int64()), ("discarded", pa.string()),
        ("trained", pa.bool_()), ("loss_weight", pa.float64()), ("old", pa.string()),
        ("prompt_token_ends", pa.list_(pa.int32())), ("token_ends", pa.list_(pa.int32())),
        ("trainer_logprobs", pa.list_(pa.float32())), ("ref_logprobs", pa.list_(pa.float32())),
        ("after_logprobs", pa.list_(pa.float32())), ("ratio", pa.list_(pa.float32())), ("bound", pa.list_(pa.int8())),
        ("importance", pa.list_(pa.float32())), ("kl", pa.list_(pa.float32())), ("values", pa.list_(pa.float32())),
        ("returns", pa.list_(pa.float32())), ("turns", pa.string()),
    ],
    metadata={"groupwise_schema": str(SCHEMA_NUMBER)},
)  # fmt: skip

TokenColumns = Literal["all", "sampled", "none"]  # token columns that are written: all, those of the sampler, or none
OF_SAMPLING = frozenset(
    {"prompt_token_ids", "token_ids", "sampling_logprobs", "entropy", "sampled", "token_advantages"}
)
"""Columns of tokens that the sampler and the advantages fill."""
_WORDS = [f.name for f in SCHEMA if pa.types.is_string(f.type) and f.name not in ("text", "evidence", "steps", "turns")]
"""Columns whose values repeat, so that a dictionary of them is worth its bytes."""
_TABLES = ("reward_parts", "measures")  # columns whose values are numbers by name, as JSON


@dataclass(frozen=True, slots=True)
class Detailed:
    """A group with what is recorded of it beyond sampling and advantages."""

    group: ScoredGroup | AdvantagedGroup
    discarded: str | None = None  # reason why it was not kept; None where it was
    prompt_token_ends: NDArray[Any] | None = None
    completions: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """For each completion further columns by name, arrays (T,) with NaN where nothing was measured; empty: none."""


def write_rollouts(
    path: Path, groups: Sequence[ScoredGroup | AdvantagedGroup | Detailed], tokens: TokenColumns = "all"
) -> list[GroupEntry]:
    """Write every completion of the groups, atomically, each group as a row group; returns its index entries."""
    return write_rows(path, [_rows(g if isinstance(g, Detailed) else Detailed(g)) for g in groups], tokens)


def write_rows(
    path: Path, rows: Sequence[Sequence[Mapping[str, Any]]], tokens: TokenColumns = "all"
) -> list[GroupEntry]:
    """Write the rows of groups, atomically; a column that a row does not have is null. Returns its index entries."""
    every, columns = [row for group in rows for row in group], []
    for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True):
        is_list = pa.types.is_list(kind)
        wanted = tokens == "all" or not is_list or (tokens == "sampled" and name in OF_SAMPLING)
        values = [row.get(name) if wanted else None for row in every]
        if name in _TABLES:
            values = [json.dumps(dict(value or {})) for value in values]
        columns.append(_lists(values, kind) if is_list else pa.array(values, kind))
    table = pa.table(columns, schema=SCHEMA)
    buffer, first, written = io.BytesIO(), 0, []
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": _WORDS, "write_statistics": False}
    with pq.ParquetWriter(buffer, SCHEMA, **options) as writer:
        for number, group in enumerate(rows):
            writer.write_table(table.slice(first, len(group)), row_group_size=max(1, len(group)))
            written.append(GroupEntry.of(group, number, first))
            first += len(group)
        listed = {name: [row.get(name) for row in every] for name in LISTED}
        listed["text"] = [(text or "")[:MOST_LISTED_TEXT] for text in listed["text"]]
        listed["reward_parts"] = [json.dumps(dict(parts or {})) for parts in listed["reward_parts"]]  # as in the file
        packed = zlib.compress(json.dumps(listed, separators=(",", ":")).encode("ascii"), 6)
        writer.add_key_value_metadata({LISTED_KEY: base64.b64encode(packed)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, buffer.getvalue())
    return written


def read_columns(path: Path, columns: Sequence[str], row_group: int | None = None) -> pa.Table:
    """Read these columns of a file of completions, or of one of its row groups. Raises DataError."""
    with told_as(DataError, f"the rollouts {path} cannot be read", OSError, pa.ArrowException, KeyError, ValueError):
        with pq.ParquetFile(path) as file:  # opened once, and in one piece: many row groups make anything else slow
            table = file.read(columns) if row_group is None else file.read_row_group(row_group, columns)
        if "turns" in columns and "turns" not in table.column_names:  # written before there were episodes
            table = table.append_column("turns", pa.nulls(len(table), pa.string()))
        return table.select(columns).cast(pa.schema([SCHEMA.field(name) for name in columns]))


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the completions of a file, without their tokens. Raises DataError: the file is not one that a run wrote."""
    records = read_columns(path, [name for name in SCHEMA.names if name not in _NOT_OF_ROWS]).to_pylist()
    with told_as(DataError, f"the rollouts {path} cannot be read", KeyError, TypeError, ValueError):
        return tuple(map(Row.of, records))


_NOT_OF_ROWS = {*OF_TOKENS, "prompt", "prompt_token_ids", "prompt_token_ends"} - {"sampled"}

# Ten thousand completions are 625 row groups, and reading eight columns of each takes longer than all the rest of a
# list. The footer, which is read anyway, holds those columns as compressed JSON; other readers skip it.
LISTED_KEY = b"groupwise_listed"
LISTED: Mapping[str, type | tuple[type, ...]] = {
    "problem": str, "sample": int, "outcome": str, "reward": (float, int), "advantage": (float, int),
    "num_tokens": int, "finish_reason": str, "text": str, "reward_parts": str,
}  # fmt: skip
"""Columns and the types of their values; each may be null, too."""
MOST_LISTED_TEXT = 160  # characters of a completion that a list shows
MOST_LISTED_BYTES = 64_000_000  # largest size of the columns in bytes; larger ones are not unpacked


def unpacked_list(footer: Mapping[bytes, bytes] | None, num_rows: int) -> dict[str, list[Any]] | None:
    """The columns of a file with so many rows; None where its footer has none, or none that fit it."""
    if not footer or LISTED_KEY not in footer:
        return None
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(base64.b64decode(footer[LISTED_KEY], validate=True), MOST_LISTED_BYTES)
        columns = json.loads(text) if inflate.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        return None
    if not isinstance(columns, dict) or columns.keys() != LISTED.keys():
        return None
    for name, kind in LISTED.items():
        values = columns[name]
        is_whole = isinstance(values, list) and len(values) == num_rows
        if not is_whole or not all(value is None or isinstance(value, kind) for value in values):
            return None
    return columns


def _rows(detailed: Detailed) -> list[dict[str, Any]]:
    group = detailed.group
    scored = group.scored if isinstance(group, AdvantagedGroup) else group
    arrays = group.advantages if isinstance(group, AdvantagedGroup) else (None,) * len(scored.verdicts)
    problem, prompt = scored.group.prompt.problem, scored.group.prompt
    common = {
        "step": scored.group.step, "problem": problem.id, "difficulty": problem.difficulty,
        "language": problem.language, "question": problem.question, "reference": problem.reference,
        "open_ended": problem.open_ended, "prompt": prompt.text, "prefill": prompt.prefill,
        "policy_version": scored.group.policy_version, "prompt_token_ids": np.array(prompt.token_ids),
        "prompt_token_ends": detailed.prompt_token_ends, "discarded": detailed.discarded, "trained": None,
    }  # fmt: skip
    more = detailed.completions or [{} for _ in scored.verdicts]
    return [
        {
            **common,
            "sample": completion.sample_index, "text": completion.text, "finish_reason": str(completion.finish_reason),
            "outcome": str(verdict.outcome), "answer": verdict.answer, "evidence": verdict.evidence,
            "reward": verdict.reward, "reward_parts": verdict.parts, "measures": verdict.measures,
            "steps": json.dumps(verdict.steps) if verdict.steps else None,
            "turns": json.dumps(completion.turns) if completion.turns else None,
            "num_tokens": completion.num_tokens, "token_ids": completion.token_ids,
            "sampling_logprobs": measured(completion, completion.sampling_logprobs),
            "entropy": None if completion.entropy is None else measured(completion, completion.entropy),
            "sampled": None if completion.sampled.all() else completion.sampled, **_advantage(completion, advantages),
            **columns,
        }
        for completion, verdict, advantages, columns in zip(
            scored.group.completions, scored.verdicts, arrays, more, strict=True
        )
    ]  # fmt: skip


def measured(completion: Completion, values: NDArray[Any]) -> NDArray[Any]:
    """(T,) from values of all tokens or of the sampled ones alone; NaN at tokens that were put in."""
    if len(values) == len(completion.sampled) and completion.sampled.all():
        return values
    return np.where(completion.sampled, completion.spread(values), np.float32(np.nan))


def _advantage(completion: Completion, advantages: TokenValues | None) -> dict[str, Any]:
    if advantages is None:
        return {"advantage": None, "token_advantages": None}
    sampled = advantages[completion.sampled]
    if (sampled == sampled[0]).all():
        return {"advantage": float(sampled[0]), "token_advantages": None}
    return {"advantage": float(sampled.mean()), "token_advantages": measured(completion, advantages)}


def _lists(arrays: Sequence[NDArray[Any] | None], kind: pa.DataType) -> pa.Array:
    there = [array for array in arrays if array is not None]
    if not there:
        return pa.nulls(len(arrays), kind)
    values = np.concatenate(there)
    absent = np.isnan(values) if values.dtype.kind == "f" else None
    flat = pa.array(values, mask=absent if absent is not None and absent.any() else None).cast(kind.value_type)
    ends = np.cumsum([0, *(0 if array is None else len(array) for array in arrays)]).astype(np.int32)
    mask = pa.array([array is None for array in arrays])
    return pa.ListArray.from_arrays(pa.array(ends), flat, type=kind, mask=mask)
