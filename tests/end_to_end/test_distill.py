"""Distillation, whole runs: a small student nears the shipped base model, and a killed run ends in the same ledger."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from signalled_run import exit_code

from groupwise.cli.train import run_recipe
from groupwise.config import parse
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.new_model import NewModel, new_policy
from groupwise.models.policy import load_policy
from groupwise.runs.directory import RunDirectory
from groupwise.trainers.distill import DistillRecipe, train_distill

SUMS = {"kind": "arithmetic", "kinds": ["sum"], "digits": [1, 1], "num_problems": 40, "num_eval_problems": 2}
SAMPLED = {"task": SUMS, "prompts_per_step": 4, "group_size": 2, "sampling": {"max_tokens": 24}}
SOURCES = pytest.mark.parametrize("source", ["jsonl", "teacher", "student"])
BASE = ModelConfig(device="cpu", num_threads=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student of one layer with random weights and the base model's tokenizer."""
    config = NewModel(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    path = tmp_path_factory.mktemp("model") / "student"
    save_checkpoint(path, new_policy(config, load_policy(BASE).tokenizer, BASE))
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "pairs.jsonl"
    rows = [{"prompt": f"{i} + 3 = ?\n", "completion": f"<think></think>\\boxed{{{i + 3}}}"} for i in range(20)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def recipe(source: str, model: Path, pairs: Path, directory: Path, **sections: Any) -> DistillRecipe:
    values = {
        "run": {"directory": str(directory), "num_steps": 4, "checkpoint_every": 2, "seed": 1},
        "model": {"path": str(model), "device": "cpu", "num_threads": 1},
        "teacher": {"device": "cpu"},
        "data": {"source": source, **({"path": str(pairs), "sequences_per_step": 8} if source == "jsonl" else SAMPLED)},
        "distill": {"tokens_per_micro_batch": 256},
        "optimizer": {"lr": 1e-2, "schedule": "cosine"},
    }
    return parse(DistillRecipe, {**values, **sections})


def train(one: DistillRecipe) -> list[Any]:
    steps: list[Any] = []
    train_distill(one, on_report=steps.append)
    return steps


def long_run(directory: Path, num_steps: int) -> dict[str, Any]:
    return {"run": {"directory": str(directory), "num_steps": num_steps, "checkpoint_every": 1000}}


def check_nearer(steps: list[Any], share: float) -> None:
    """The loss fell to at most this share of what it was, and both like the same tokens more often."""
    first, last = steps[:3], steps[-3:]
    assert sum(step.loss for step in last) < share * sum(step.loss for step in first), steps
    before, after = (sum(step.measured["teacher_agreement"] for step in part) for part in (first, last))
    assert after > before, steps


@SOURCES
def test_a_random_student_nears_its_teacher(source: str, model: Path, pairs: Path, tmp_path: Path) -> None:
    steps = train(recipe(source, model, pairs, tmp_path / "run", **long_run(tmp_path / "run", 15)))
    check_nearer(steps, 0.85)
    assert all(step.measured["sampled_tokens"] == (None if source == "jsonl" else step.num_tokens) for step in steps)


def test_on_policy_distillation_mends_a_damaged_copy(pairs: Path, tmp_path: Path) -> None:
    """The reverse KL on the student's own completions, as it is used: from a student that can already speak."""
    student, generator = load_policy(BASE), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for matrix in (parameter for parameter in student.model.parameters() if parameter.ndim == 2):
            matrix.add_(0.5 * matrix.std() * torch.randn(matrix.shape, generator=generator))
    save_checkpoint(tmp_path / "damaged", student)
    sections = {"distill": {"divergence": "reverse_kl"}, "optimizer": {"lr": 3e-4}}
    one = recipe("student", tmp_path / "damaged", pairs, tmp_path / "run", **sections, **long_run(tmp_path / "run", 10))
    check_nearer(train(one), 0.7)


@pytest.mark.parametrize("source", ["jsonl", pytest.param("teacher", marks=pytest.mark.slow), "student"])
def test_a_killed_run_ends_in_the_same_ledger_and_weights(
    source: str, model: Path, pairs: Path, server: None, tmp_path: Path
) -> None:
    whole, killed = (recipe(source, model, pairs, tmp_path / name) for name in ("whole", "killed"))
    train_distill(whole)
    assert exit_code(killed, "step-000004", train_distill) == -signal.SIGKILL
    resumed_at = []
    session = train_distill(killed, on_report=lambda step: resumed_at.append(step.step))
    assert resumed_at[0] == 2
    expected, found = (RunDirectory(Path(one.run.directory)) for one in (whole, killed))
    assert found.ledger.path.read_bytes() == expected.ledger.path.read_bytes()
    lines = list(found.ledger.lines())
    assert [line["step"] for line in lines] == list(range(4))
    assert len({line["weights"] for line in lines}) == 4
    assert [len(line.get("problems", [])) for line in lines] == [0 if source == "jsonl" else 4] * 4
    assert len({line.get("tokens") for line in lines}) == (1 if source == "jsonl" else 4)
    metrics = list(found.metrics.lines())
    assert session.progress.tokens == sum(line["num_tokens"] for line in metrics)
    assert session.progress.sampled_tokens == sum(line["sampled_tokens"] or 0 for line in metrics)
    for name in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = ((run.checkpoint(4) / name).read_bytes() for run in (found, expected))
        assert ours == theirs


@pytest.mark.parametrize("source", ["jsonl", "student"])
def test_the_command_line_shows_it(
    source: str, model: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(record=True, width=200)
    monkeypatch.setattr("groupwise.cli.train.console", console)
    run_recipe(recipe(source, model, pairs, tmp_path / "run"), False)
    shown = console.export_text()
    assert "step     0  loss" in shown
    assert "teacher_agreement" in shown
    assert "Trained on" in shown
