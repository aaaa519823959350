"""Every completion is read back from parquet as it was written, and the list in the footer is what the columns say."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from groupwise.errors import DataError
from groupwise.runs import rollouts
from groupwise.runs.records import Records
from groupwise.runs.rollouts import LISTED, LISTED_KEY, SCHEMA, read_rows, unpacked_list, write_rollouts, write_rows
from groupwise.types import (
    AdvantagedGroup,
    Completion,
    FinishReason,
    Group,
    Outcome,
    Problem,
    Prompt,
    ScoredGroup,
    Verdict,
)


def scored_group() -> ScoredGroup:
    problem = Problem("arithmetic/2x3", "What is 2 × 3?", "6", "product 1x1", "zh")
    prompt = Prompt(problem, "What is 2 × 3?\n<think>", (5, 6, 7), "<think>")
    completions = tuple(
        Completion(
            sample_index=i, token_ids=np.arange(3 + i, dtype=np.int64) + 100,
            sampling_logprobs=np.linspace(-2, -0.1, 3 + i, dtype=np.float32),
            entropy=np.linspace(0, 1.7, 3 + i, dtype=np.float32),
            finish_reason=FinishReason.STOP if i else FinishReason.LENGTH, text=f"数 {i}\n</think>",
        )
        for i in range(3)
    )  # fmt: skip
    verdicts = (
        Verdict(Outcome.CORRECT, {"accuracy": 1.0, "format": 0.25}, "'6' equals '6'", "6"),
        Verdict(Outcome.UNPARSABLE, {"accuracy": 0.0, "format": 0.0}, "no answer"),
        Verdict(Outcome.TIMEOUT, {}, "5 s"),
    )
    return ScoredGroup(Group(prompt, completions, step=4, policy_version=3), verdicts)


def test_every_field_is_read_back(tmp_path: Path) -> None:
    scored = scored_group()
    first, second, _ = scored.group.completions
    advantages = (np.full(first.num_read, 0.625), np.linspace(-1, 1, second.num_read), None)
    write_rollouts(tmp_path / "rollouts" / "step.parquet", [AdvantagedGroup(scored, advantages)])
    rows = pq.read_table(tmp_path / "rollouts" / "step.parquet").to_pylist()
    assert len(rows) == 3
    for i, (row, completion) in enumerate(zip(rows, scored.group.completions, strict=True)):
        assert row.keys() == set(SCHEMA.names)
        assert (row["step"], row["policy_version"], row["sample"]) == (4, 3, i)
        assert (row["problem"], row["difficulty"], row["reference"]) == ("arithmetic/2x3", "product 1x1", "6")
        assert (row["question"], row["prompt"]) == ("What is 2 × 3?", "What is 2 × 3?\n<think>")
        assert (row["text"], row["finish_reason"]) == (completion.text, completion.finish_reason)
        assert (row["language"], row["prefill"]) == ("zh", "<think>")
        assert row["prompt_token_ids"] == [5, 6, 7]
        assert row["token_ids"] == completion.token_ids.tolist()
        assert row["sampling_logprobs"] == completion.sampling_logprobs.tolist()
        assert row["entropy"] == completion.entropy.tolist()
    assert [row["outcome"] for row in rows] == ["correct", "unparsable", "timeout"]
    assert [row["reward"] for row in rows] == [1.25, 0.0, None]
    assert [row["advantage"] for row in rows] == [0.625, pytest.approx(0), None]
    assert [row["token_advantages"] for row in rows] == [None, pytest.approx([-1, -1 / 3, 1 / 3, 1]), None]
    assert [row["sampled"] for row in rows] == [None, None, None]  # the policy drew all of them
    assert [row["answer"] for row in rows] == ["6", None, None]
    assert [row["evidence"] for row in rows] == ["'6' equals '6'", "no answer", "5 s"]
    assert rows[0]["reward_parts"] == '{"accuracy": 1.0, "format": 0.25}'


def test_the_schema_is_the_same_also_for_no_rows_and_carries_its_version(tmp_path: Path) -> None:
    for name, groups in (("empty", []), ("full", [scored_group(), scored_group()])):
        write_rollouts(tmp_path / name, groups)
        rows = pq.read_table(tmp_path / name).to_pylist()
        assert [row["advantage"] for row in rows] == [None] * 3 * len(groups)  # evaluations have none
        schema = pq.read_schema(tmp_path / name)
        assert schema.equals(SCHEMA)
        assert schema.metadata[b"groupwise_schema"] == b"1"


@pytest.mark.parametrize("content", [None, b"", b"PAR1 but not really", b"text"])
def test_what_is_no_parquet_file_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "step.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"step\.parquet cannot be read"):
        read_rows(path)


def a_row(problem: str, sample: int, **more: Any) -> dict[str, Any]:
    return {
        "step": 0, "problem": problem, "sample": sample, "text": "é" * 300, "finish_reason": "stop",
        "outcome": "crashed" if sample else "correct", "reward": None if sample else 0.1 + 0.2, "advantage": -1 / 3,
        "num_tokens": 7, "difficulty": "", "reward_parts": {"accuracy": 0.1 + 0.2, "format": sample}, **more,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "ledger.jsonl").write_text("")
    write_rows(path_of(tmp_path), [[a_row("a", 0), a_row("a", 1)], [a_row("b", 0)]])
    return tmp_path


def path_of(run: Path) -> Path:
    return run / "rollouts" / "step-000000.parquet"


def with_footer(path: Path, footer: dict[bytes, bytes]) -> None:
    """The same rows under another footer."""
    table = pq.read_table(path)
    with pq.ParquetWriter(path, SCHEMA) as writer:
        writer.write_table(table.cast(SCHEMA))
        writer.add_key_value_metadata(footer)


def columns_of(path: Path) -> dict[str, list[Any]]:
    table = pq.read_table(path, columns=list(LISTED))
    columns = {name: table[name].to_pylist() for name in LISTED}
    return {**columns, "text": [text[:160] for text in columns["text"]]}


def test_the_footer_says_what_the_columns_say(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(run)
    found = unpacked_list(pq.read_metadata(path).metadata, 3)
    assert found == columns_of(path) == Records.open(run).listed(0)
    assert found["reward"] == [0.1 + 0.2, None, 0.1 + 0.2]  # every bit, and null is no 0
    monkeypatch.setattr(rollouts, "MOST_LISTED_BYTES", 100)
    assert unpacked_list(pq.read_metadata(path).metadata, 3) is None


def packed(columns: object) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(columns).encode()))


GOOD = {name: [None] * 3 for name in LISTED}
BAD: dict[str, bytes] = {
    "no base64": b"\xff\xff", "not compressed": base64.b64encode(b"{}"),
    "no JSON": base64.b64encode(zlib.compress(b"{")), "deep": base64.b64encode(zlib.compress(b"[" * 200_000)),
    "no object": packed([]), "too few rows": packed({**GOOD, "reward": [1.0]}),
    "a column less": packed({"reward": [1.0] * 3}), "another type": packed({**GOOD, "outcome": [3, 3, 3]}),
    "no list": packed({**GOOD, "text": "abc"}), "cut": base64.b64encode(zlib.compress(json.dumps(GOOD).encode())[:-8]),
}  # fmt: skip


@pytest.mark.parametrize("fault", [*BAD, "of another program"])
def test_a_footer_that_does_not_fit_is_passed_over(run: Path, fault: str) -> None:
    path = path_of(run)
    expected = columns_of(path)
    with_footer(path, {LISTED_KEY: BAD[fault]} if fault in BAD else {b"other": b"thing"})
    assert unpacked_list(pq.read_metadata(path).metadata, 3) is None
    assert Records.open(run).listed(0) == expected
