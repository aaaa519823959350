"""Completions on disk: one parquet file per training step or evaluation, readable by pandas, polars and DuckDB.

Token arrays are lists; log-probabilities and entropies are in nats; `advantage` and `reward` are null where the
verifier failed (and `advantage` in evaluations). Where advantages differ between the tokens of a completion,
`advantage` is their mean and `token_advantages` holds them; else that is null. `sampled` says which tokens the policy
drew; null where it drew all of them. `entropy` is null where the engine does not measure it.

A value that nothing measured is null, never 0: a list as a whole, or the entries of tokens that were put in.

Schema 3 added `language` (of the problem) and `prefill` (the end of `prompt` that belongs to the answer), schema 4
`sampled`, schema 5 `open_ended` (of the problem), schema 6 everything below it, which says what a step's updates did
with every token (`groupwise.runs.records.CompletionRecord` explains each column), one row group for every group, and
the groups that were sampled and not kept. `groupwise.upgrade` says how an older file is read.
"""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.errors import DataError
from groupwise.runs.atomic import write_file
from groupwise.types import AdvantagedGroup, Completion, ScoredGroup, TokenValues

SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("problem", pa.string()),
        ("difficulty", pa.string()),
        ("language", pa.string()),
        ("question", pa.string()),
        ("reference", pa.string()),
        ("open_ended", pa.bool_()),
        ("prompt", pa.string()),
        ("prefill", pa.string()),
        ("sample", pa.int64()),
        ("text", pa.string()),
        ("finish_reason", pa.string()),
        ("outcome", pa.string()),
        ("answer", pa.string()),
        ("evidence", pa.string()),
        ("reward", pa.float64()),
        ("reward_parts", pa.string()),
        ("measures", pa.string()),
        ("advantage", pa.float64()),
        ("token_advantages", pa.list_(pa.float32())),
        ("policy_version", pa.int64()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),
        ("sampling_logprobs", pa.list_(pa.float32())),
        ("entropy", pa.list_(pa.float32())),
        ("sampled", pa.list_(pa.bool_())),
        ("num_tokens", pa.int64()),
        ("discarded", pa.string()),
        ("trained", pa.bool_()),
        ("loss_weight", pa.float64()),
        ("old", pa.string()),
        ("prompt_token_ends", pa.list_(pa.int32())),
        ("token_ends", pa.list_(pa.int32())),
        ("trainer_logprobs", pa.list_(pa.float32())),
        ("ref_logprobs", pa.list_(pa.float32())),
        ("after_logprobs", pa.list_(pa.float32())),
        ("ratio", pa.list_(pa.float32())),
        ("bound", pa.list_(pa.int8())),
        ("importance", pa.list_(pa.float32())),
        ("kl", pa.list_(pa.float32())),
        ("values", pa.list_(pa.float32())),
        ("returns", pa.list_(pa.float32())),
    ],
    metadata={"groupwise_schema": "6"},
)


def write_rollouts(path: Path, groups: Sequence[ScoredGroup | AdvantagedGroup]) -> None:
    """Write every completion of the groups, atomically."""
    rows = rollout_rows(groups)
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), buffer, compression="zstd")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, buffer.getvalue())


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """One dictionary per completion.

    Raises:
        DataError: the file is missing or not a parquet file.
    """
    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"the rollouts {path} cannot be read: {error}") from None
    return rows


def rollout_rows(groups: Sequence[ScoredGroup | AdvantagedGroup]) -> list[dict[str, Any]]:
    """One dictionary per completion, as `read_rollouts` gives them back."""
    return [row for group in groups for row in _rows(group)]


def _rows(group: ScoredGroup | AdvantagedGroup) -> list[dict[str, Any]]:
    scored = group.scored if isinstance(group, AdvantagedGroup) else group
    arrays = group.advantages if isinstance(group, AdvantagedGroup) else (None,) * len(scored.verdicts)
    problem, prompt = scored.group.prompt.problem, scored.group.prompt
    return [
        {
            "step": scored.group.step,
            "problem": problem.id,
            "difficulty": problem.difficulty,
            "language": problem.language,
            "question": problem.question,
            "reference": problem.reference,
            "open_ended": problem.open_ended,
            "prompt": prompt.text,
            "prefill": prompt.prefill,
            "sample": completion.sample_index,
            "text": completion.text,
            "finish_reason": str(completion.finish_reason),
            "outcome": str(verdict.outcome),
            "answer": verdict.answer,
            "evidence": verdict.evidence,
            "reward": verdict.reward,
            "reward_parts": json.dumps(dict(verdict.parts)),
            "measures": json.dumps(dict(verdict.measures)),
            **_advantage(completion, advantages),
            "policy_version": scored.group.policy_version,
            "prompt_token_ids": list(prompt.token_ids),
            "token_ids": completion.token_ids.tolist(),
            "sampling_logprobs": completion.sampling_logprobs.tolist(),
            "entropy": None if completion.entropy is None else completion.entropy.tolist(),
            "sampled": None if completion.sampled.all() else completion.sampled.tolist(),
        }
        for completion, verdict, advantages in zip(scored.group.completions, scored.verdicts, arrays, strict=True)
    ]


def _advantage(completion: Completion, advantages: TokenValues | None) -> dict[str, Any]:
    if advantages is None:
        return {"advantage": None, "token_advantages": None}
    sampled = advantages[completion.sampled]
    if (sampled == sampled[0]).all():
        return {"advantage": float(sampled[0]), "token_advantages": None}
    return {"advantage": float(sampled.mean()), "token_advantages": advantages.tolist()}
