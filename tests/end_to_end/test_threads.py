"""The number of threads changes how long a run takes, and no bit of what it computes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import save_random

from groupwise.config import parse
from groupwise.models.new_model import character_tokenizer
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS, train

SUMS = {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 40, "num_eval_problems": 4}
RL = {
    "task": {**SUMS, "template": {"prompt": "{question}\n"}},
    "sampling": {"max_tokens": 12},
    "evaluation": {"num_problems": 2, "test_problems": 0},
}
PAIRS = {"pairs_per_step": 8, "tokens_per_micro_batch": 60}
BATCH = {"prompts_per_step": 4, "group_size": 4}


@pytest.fixture(autouse=True)
def one_thread_again() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("model"), seed=0)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model(tmp_path_factory.mktemp("teacher"), seed=1)


def random_model(path: Path, seed: int) -> Path:
    tokenizer = character_tokenizer("0123456789 What is?+-=\\{}boxedthink</>\n")
    return save_random(path, tokenizer, num_hidden_layers=2, intermediate_size=64, seed=seed)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": f"{i} + 3 = ?\n", "completion": f"\\boxed{{{i + 3}}}"} for i in range(40)]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pairs = [{"prompt": row["prompt"], "chosen": row["completion"], "rejected": "3"} for row in rows]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    return folder


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "sft", "reward_model", "dpo", "distill"])
def test_a_run_on_three_threads_has_the_ledger_of_a_run_on_one(
    algorithm: str, model: Path, teacher: Path, data: Path, tmp_path: Path
) -> None:
    texts = {"source": "jsonl", "path": str(data / "texts.jsonl")}
    pairs = {"source": "file", "path": str(data / "pairs.jsonl")}
    sections: dict[str, dict[str, Any]] = {
        "grpo": {**RL, "grpo": BATCH, "loss": {"tokens_per_micro_batch": 50, "kl_coef": 0.1, "mini_batches": 2}},
        "ppo": {**RL, "ppo": BATCH, "loss": {"tokens_per_micro_batch": 50}},
        "sft": {"data": texts, "sft": {"sequences_per_step": 12, "tokens_per_micro_batch": 60}},
        "reward_model": {"data": pairs, "reward_model": PAIRS},
        "dpo": {"data": pairs, "dpo": PAIRS},
        "distill": {"data": texts, "teacher": {"path": str(teacher)}, "distill": {"tokens_per_micro_batch": 60}},
    }
    ledgers = []
    for num_threads in (1, 3):
        values = {
            "run": {"directory": str(tmp_path / str(num_threads)), "num_steps": 2, "seed": 1},
            "model": {"path": str(model), "device": "cpu", "num_threads": num_threads},
            "optimizer": {"lr": 1e-2},
            **sections[algorithm],
        }
        train(parse(TRAINERS.find(algorithm).recipe, values))
        assert torch.get_num_threads() == num_threads
        ledgers.append(RunDirectory(tmp_path / str(num_threads)).ledger.path.read_bytes())
    assert ledgers[0] == ledgers[1]
