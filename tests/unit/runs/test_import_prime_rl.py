"""Streams of prime-rl, written as its file monitor writes them: episodes, what became known later, and metrics."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from groupwise.cli.app import app
from groupwise.errors import DataError
from groupwise.explorer.views import Views
from groupwise.runs.imports import read_prime_rl


def episode(step: int, group: int, sample: int, kind: str = "train") -> dict[str, Any]:
    nodes = [
        {"message": {"role": "user", "content": f"What is {group} + 1?"}, "token_ids": [1, 2]},
        {"message": {"role": "assistant", "content": f"I say {sample}."}, "parent": 0, "token_ids": [3], "mask": [1]},
    ]
    info = {"kind": kind, "dispatch": {"step": step - 1, "time": 0.0}, "arrival": {"step": step, "time": 1.0}}
    rewards = {"right": {"score": float(sample == 0), "weight": 1.0}, "style": {"score": 1.0, "weight": 0.5}}
    own = {
        "id": f"t{step}-{group}-{sample}-{kind}", "nodes": nodes, "rewards": rewards, "metrics": {"turns": 1},
        "info": info,
    }  # fmt: skip
    return {"id": own["id"], "group": {"id": f"g{group}"}, "traces": [own, {"id": "judge", "nodes": [], "rewards": {}}]}


def lines(path: Path, values: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Two chunks, the first of them sealed; what was shipped is said later."""
    out = tmp_path / "outputs"
    stream = out / "traces" / "stream"
    every = [episode(step, group, sample) for step in (1, 2, 3) for group in (1, 2) for sample in (0, 1)]
    lines(stream / "00001.jsonl", [*every[6:], episode(2, 7, 0, "eval")])
    with pa.output_stream(str(stream / "00000.jsonl.zst"), compression="zstd") as file:
        file.write("".join(json.dumps(one) + "\n" for one in every[:6]).encode())
    known = {"effective": True, "ship": {"step": 2}, "advantage": 0.5}
    shipped = [{"version": 1, "trace_id": one["id"], "branches": [], "info": known} for one in every[:4]]
    lines(out / "traces" / "annotations" / "orchestrator" / "00000.jsonl", shipped)
    lines(stream / "index.jsonl", [{"line": 1, "offset": 0}])
    told = {"time": 0.0, "train/agg/effective/reward/mean": 0.75, "entropy/all/mean": 0.5, "optim/grad_norm": 1.0}
    metrics = [{"step": 1, **told}, {"step": 2, **told}, {"step": None, "time": 1.0, "vllm/requests": 3}]
    lines(out / "monitors" / "metrics.jsonl", metrics)
    return out


def test_episodes_are_at_the_step_that_shipped_them_with_what_was_known_later(output: Path) -> None:
    foreign = read_prime_rl(output)
    assert foreign.damage == ()
    assert {step: len(own) for step, own in foreign.answers.items()} == {2: 8, 3: 4}  # step 1 shipped at 2
    first = foreign.answers[2][0]
    assert (first.prompt, first.text) == ("What is 1 + 1?", "I say 0.")
    assert (first.reward, first.parts, first.advantage) == (1.5, {"right": 1.0, "style": 0.5}, 0.5)
    assert foreign.answers[3][0].advantage is None
    assert [len(own) for own in foreign.dev.values()] == [1]
    assert foreign.scalars == {step: {"reward": 0.75, "entropy": 0.5, "grad_norm": 1.0} for step in (1, 2)}


def test_the_explorer_shows_an_imported_run(output: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "prime-rl", str(output), str(tmp_path / "run"), "--correct", "right"])
    assert result.exit_code == 0, result.output
    assert "3 steps, 13 completions, 1 evaluations" in result.output
    place = Views([tmp_path / "run"]).place(0, "s2")
    assert place["columns"]["outcome"] == ["correct", "wrong"] * 4
    assert [group["num_completions"] for group in place["groups"]] == [4, 4]


def test_a_stream_that_was_cut_is_read_to_there_and_named(output: Path) -> None:
    path = output / "traces" / "stream" / "00001.jsonl"
    path.write_text(path.read_text()[:-30])
    foreign = read_prime_rl(output)
    assert sum(map(len, foreign.answers.values())) == 12
    assert foreign.dev == {}
    assert foreign.damage == ("00001.jsonl, line 7: it is not JSON; the stream ends there",)


def test_hostile_and_damaged_streams_are_named(output: Path, tmp_path: Path) -> None:
    traces: list[Any] = [
        {"rewards": {"a": 3}, "info": []},
        {"rewards": {"a": {"score": "x"}}},
        {"rewards": {"a": {"score": 1}}, "nodes": [{"message": 7}], "info": {"arrival": {"step": "../x"}}},
    ]
    bad = [[], 3, {"traces": 3}, {"traces": traces}]
    lines(output / "traces" / "stream" / "00002.jsonl", bad)
    assert sum(map(len, read_prime_rl(output).answers.values())) == 12
    (output / "traces" / "stream" / "00000.jsonl.zst").write_bytes(b"no zstd")
    with pytest.raises(DataError, match=r"00000\.jsonl\.zst cannot be read"):
        read_prime_rl(output)
    with pytest.raises(DataError, match="has no episodes of prime-rl"):
        read_prime_rl(tmp_path / "nothing")
