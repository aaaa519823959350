"""Run directories written by hand: a small one with every column, and hostile ones."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from groupwise.runs.rollouts import SCHEMA

CONFIG = """algorithm = "grpo"
[run]
num_steps = 3
seed = 7
[model]
path = "base"
[task]
kind = "arithmetic"
[advantage]
kind = "group_normalised"
[loss]
aggregation = "token"
epochs = 2
[loss.policy]
kind = "clipped_ratio"
clip_high = 0.28
"""
WORDS = ("23 ", "× ", "17 ", "= ", "391", ". ", "so ", "200 + ", "check ", "it ")


def row(step: int, problem: str, sample: int, tokens: list[str], reward: float | None, **more: Any) -> dict[str, Any]:
    """A completion with every figure, whose tokens are these texts."""
    draw = random.Random(f"{step} {problem} {sample}")
    length = len(tokens)
    numbers = {
        name: [draw.uniform(-2, 0) for _ in range(length)]
        for name in ("sampling_logprobs", "trainer_logprobs", "ref_logprobs", "after_logprobs")
    }
    ends = [sum(map(len, tokens[: i + 1])) for i in range(length)]
    outcome = "crashed" if reward is None else "correct" if reward > 0 else "wrong"
    return {
        "step": step, "problem": problem, "difficulty": "easy", "question": f"What is {problem}?", "reference": "391",
        "prompt": f"What is {problem}?", "prompt_token_ids": [1, 2], "prompt_token_ends": [4, len(problem) + 9],
        "sample": sample, "text": "".join(tokens), "finish_reason": "stop", "outcome": outcome, "answer": "391",
        "evidence": "391 is equal to 391", "reward": reward, "reward_parts": json.dumps({"answer": reward or 0.0}),
        "measures": "{}", "advantage": None if reward is None else reward - 0.5, "policy_version": step,
        "token_ids": list(range(10, 10 + length)), "token_ends": ends, "num_tokens": length, "trained": True,
        "loss_weight": 0.125, "old": "trainer", "entropy": [draw.uniform(0, 1) for _ in range(length)],
        "ratio": [draw.uniform(0.7, 1.4) for _ in range(length)], "bound": [draw.choice((0, 0, 1, 2)) for _ in tokens],
        "kl": [draw.uniform(0, 0.1) for _ in range(length)], **numbers, **more,
    }  # fmt: skip


def write_groups(path: Path, groups: Iterable[list[dict[str, Any]]]) -> None:
    """A file of completions with one row group per group."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for rows in groups:
            writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))


def group(step: int, problem: str, rewards: Iterable[float | None], **more: Any) -> list[dict[str, Any]]:
    """A group of completions with these rewards."""
    rows = []
    for sample, reward in enumerate(rewards):
        draw = random.Random(f"text {step} {problem} {sample}")
        rows.append(row(step, problem, sample, draw.choices(WORDS, k=12), reward, **more))
    return rows


def write_run(path: Path, steps: int = 3, config: str = CONFIG) -> Path:
    """A run of a few steps with two evaluations."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(config)
    (path / "ledger.jsonl").write_text("")
    lines = [
        {"kind": "step", "step": step, "reward": 0.2 * step, "entropy": 0.5, "length": 12.0} for step in range(steps)
    ]
    lines += [{"kind": kind, "step": steps, "pass_at_1": [0.5, 0.4, 0.6]} for kind in ("test-before", "test-after")]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in range(steps):
        rewards: tuple[list[float | None], ...] = ([1.0, 0.0, 1.0, None], [0.0, 0.0, 0.0, 0.0])
        groups = [group(step, f"23×{17 + step + k}", each) for k, each in enumerate(rewards)]
        write_groups(path / "rollouts" / f"step-{step:06d}.parquet", groups)
    for later, (name, rewards) in enumerate((("test-before", [0.0, 0.0]), ("test-after", [1.0, 0.0]))):
        write_groups(path / "rollouts" / f"{name}.parquet", [group(steps + later, "6×7", rewards, advantage=None)])
    return path


HOSTILE = (
    "<script>window.hacked = 1</script>", "</script><script>window.hacked = 1</script>", "<!--<script>",
    "<img src=x onerror='window.hacked = 1'>", "\u202egnp.exe", "a\x00b", "\u2028\u2029", "{{7*7}}",
    "javascript:alert(1)",
    "'\"><svg onload=window.hacked=1>", "\ufeff\u200b", "; rm -rf ~ #",
)  # fmt: skip


def write_hostile(path: Path, big: int = 10_000_000) -> Path:
    """A run in which every text wants to be more than text, and one token is very long."""
    write_run(path, steps=1, config=CONFIG.replace('"arithmetic"', json.dumps(HOSTILE[0])))
    rows = []
    for sample, text in enumerate(HOSTILE):
        bad = dict.fromkeys(("question", "reference", "prompt", "answer", "evidence", "difficulty"), text)
        bad |= {"reward_parts": json.dumps({text: 1.0}), "prompt_token_ends": None}
        rows.append(row(0, HOSTILE[0], sample, [text, "x"], float("nan") if sample == 3 else 1.0, **bad))
    rows.append(row(0, HOSTILE[0], len(HOSTILE), ["y" * big, "z"], 0.0, entropy=[float("nan"), float("inf")]))
    write_groups(path / "rollouts" / "step-000000.parquet", [rows])
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"kind":"step","step":0,"<script>window.hacked=1</script>":1,"reward":NaN,"x":1e999}\n')
        file.write('not json\n{"kind":"step"}\n[]\n{"step": 1, "rew')
    return path
