"""Every completion is read back from parquet as it was written."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from groupwise.errors import DataError
from groupwise.runs.rollouts import SCHEMA, read_rows, write_rollouts
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
