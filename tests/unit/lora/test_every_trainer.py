"""Every trainer changes adapters alone, resumes in the same ledger, and leaves a checkpoint that others load."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from diet import alphabet
from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.models.adapters import is_adapter
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.export import export
from groupwise.models.new_model import NewModel, character_tokenizer, new_policy
from groupwise.models.policy import load_policy
from groupwise.models.reward_model import load_reward_model
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS
from groupwise.trainers.replay import replay

LORA = {"rank": 2, "alpha": 16}
SUMS = {"kind": "arithmetic", "kinds": ["sum", "difference"], "digits": [1, 1], "num_problems": 24,
        "num_eval_problems": 3}  # fmt: skip
RL: dict[str, Any] = {
    "task": SUMS,
    "verifier": {"extraction": "last_number"},
    "sampling": {"max_tokens": 6},
    "loss": {"kl_coef": 0.05},
    "optimizer": {"lr": 1e-2, "schedule": "cosine"},
    "evaluation": {"every": 4, "num_problems": 3, "num_samples": 2, "test_problems": 3, "test_samples": 2},
}
PAIRS = {"source": "task", "task": {**SUMS, "num_problems": 12}}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {**RL, "grpo": {"prompts_per_step": 6, "group_size": 32}},
    "ppo": {**RL, "ppo": {"prompts_per_step": 4, "group_size": 8}, "critic": {"lr": 1e-2}},
    "sft": {"data": {"source": "jsonl", "path": "{pairs}"}, "sft": {"sequences_per_step": 4}},
    "dpo": {"data": PAIRS, "dpo": {"pairs_per_step": 4}},
    "reward_model": {"data": PAIRS, "reward_model": {"pairs_per_step": 4}},
    "process_reward_model": {"data": {"path": "{steps}"}, "process_reward_model": {"rows_per_step": 2}},
    "implicit": {
        "algorithm": "process_reward_model", "data": {"path": "{steps}"},
        "process_reward_model": {"rows_per_step": 2, "supervision": "implicit"},
    },
    "distill": {
        "teacher": {"path": "{teacher}", "device": "cpu"},
        "data": {"source": "student", "task": SUMS, "prompts_per_step": 2, "group_size": 2,
                 "sampling": {"max_tokens": 6}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two models of one layer with random weights that write digits often, and data for every trainer."""
    folder = tmp_path_factory.mktemp("files")
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
             "intermediate_size": 32, "context_length": 256, "architecture": "qwen2"}  # fmt: skip
    digits = "0123456789 What is?+-\n"
    letters = {"model": digits, "teacher": digits, "wide": alphabet()}
    for seed, (name, characters) in enumerate(letters.items()):
        policy = new_policy(NewModel(seed=seed, **shape), character_tokenizer(characters), ModelConfig(device="cpu"))
        save_checkpoint(folder / name, policy)
    rows = [{"prompt": f"{i} + 3?", "completion": f"{i + 3}"} for i in range(6)]
    steps = [{"prompt": f"{i} + 3?", "completions": ["3 + 3", f"{i}"], "labels": [True, False]} for i in range(6)]
    for name, content in (("pairs", rows), ("steps", steps)):
        (folder / name).write_text("\n".join(map(json.dumps, content)))
    return {name: str(folder / name) for name in (*letters, "pairs", "steps")}


def recipe(algorithm: str, files: dict[str, str], directory: Path, **sections: Any) -> Any:
    model = files["wide" if algorithm in ("dpo", "reward_model") else "model"]
    values = {
        "algorithm": algorithm,
        "run": {"directory": str(directory), "num_steps": 2, "checkpoint_every": 1, "seed": 1},
        "model": {"path": model, "device": "cpu", "num_threads": 1},
        "lora": LORA,
        "optimizer": {"lr": 1e-2},
        **ALGORITHMS[algorithm],
        **sections,
    }
    text = json.dumps({key: value for key, value in values.items() if value is not None})
    for name, path in files.items():
        text = text.replace(f"{{{name}}}", path)
    return parse(TRAINERS.find(values["algorithm"]).recipe, json.loads(text))


def train(one: Any) -> Any:
    return TRAINERS.find(one.algorithm).run(one, False, lambda report: None)


def stopped_after_one_step(run: RunDirectory, target: Path) -> None:
    """The directory as a kill in the second step leaves it: what came after the checkpoint is still there, cut off."""
    shutil.copytree(run.path, target, symlinks=True)
    shutil.rmtree(target / "checkpoints" / "step-000002")
    (target / "finished.json").unlink()
    (target / "checkpoints" / "best").unlink(missing_ok=True)
    ledger = (target / "ledger.jsonl").read_bytes()
    (target / "ledger.jsonl").write_bytes(ledger[: len(ledger) - 37])
    if (run.path / "checkpoints" / "best").exists():
        (target / "checkpoints" / "best").symlink_to("step-000001")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_trains_adapters_and_resumes_in_the_same_ledger(
    algorithm: str, files: dict[str, str], tmp_path: Path
) -> None:
    one = recipe(algorithm, files, tmp_path / "run")
    session = train(one)
    run = RunDirectory(tmp_path / "run")
    policy, last = session.policy, run.checkpoint(2)
    load: Any = load_reward_model if algorithm.endswith("reward_model") else load_policy
    model = ModelConfig(path=str(last), device="cpu")
    assert load(model).fingerprint() == policy.fingerprint()
    if load is load_policy:
        base = load_policy(model.at(one.model.path))
        frozen = {n.replace(".base_layer", ""): w for n, w in policy.state() if not is_adapter(n)}
        assert all(torch.equal(weight, frozen[name]) for name, weight in base.state())
    moved = [weight.abs().max().item() for name, weight in policy.state() if ".lora_B." in name]
    assert min(moved) > 0, moved
    assert (last / "adapter_model.safetensors").exists()
    assert not (last / "model.safetensors").exists()
    stopped_after_one_step(run, tmp_path / "again")
    train(recipe(algorithm, files, tmp_path / "again"))
    resumed = RunDirectory(tmp_path / "again")
    assert resumed.ledger.path.read_bytes() == run.ledger.path.read_bytes()
    for name in ("adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors"):
        assert (resumed.checkpoint(2) / name).read_bytes() == (last / name).read_bytes(), name


def test_a_critics_adapters_are_all_that_is_kept_of_it(files: dict[str, str], tmp_path: Path) -> None:
    session = train(recipe("ppo", files, tmp_path / "run", run={
        "directory": str(tmp_path / "run"), "num_steps": 1, "seed": 1}))  # fmt: skip
    from safetensors.torch import load_file

    kept = load_file(session.directory.checkpoint(1) / "optimizer.safetensors")
    of_critic = [name for name in kept if name.startswith("critic:")]
    assert {is_adapter(name) or name.startswith("critic:head.") for name in of_critic} == {True}
    assert len(of_critic) == 2 * 7 + 2


def test_a_run_is_replayed_and_exported(files: dict[str, str], tmp_path: Path) -> None:
    settings = {"directory": str(tmp_path / "run"), "num_steps": 2, "checkpoint_every": 1, "seed": 1}
    session = train(recipe("grpo", files, tmp_path / "run", run=settings))
    line = next(line for line in session.directory.ledger.lines() if line.get("step") == 1 and "problems" in line)
    shutil.rmtree(session.directory.checkpoint(1))  # so that a step is repeated from the base
    assert replay(tmp_path / "run", 1, line["problems"][0][0], 3).identical
    export(tmp_path / "run", tmp_path / "plain")
    plain, ours = (load_policy(ModelConfig(path=str(path), device="cpu")) for path in (
        tmp_path / "plain", session.directory.checkpoint(2)))  # fmt: skip
    from groupwise.models.packed import Sequences, pack

    packed = pack([Sequences([5, 6], [[7, 8, 9]])])
    torch.testing.assert_close(
        plain.token_logprobs(packed).logprobs, ours.token_logprobs(packed).logprobs, atol=1e-5, rtol=0
    )
    assert not (tmp_path / "plain" / "adapter_config.json").exists()
    assert json.loads((tmp_path / "plain" / "provenance.json").read_text())[-1]["recipe"]["lora"]["rank"] == 2


def test_the_reference_is_the_base_only_where_the_run_starts_from_it(files: dict[str, str], tmp_path: Path) -> None:
    settings = {"directory": str(tmp_path / "run"), "num_steps": 1}
    files = {**files, "model": files["wide"]}
    train(recipe("sft", files, tmp_path / "run", run=settings))
    adapters = {"path": str(tmp_path / "run" / "checkpoints" / "step-000001"), "device": "cpu"}
    for algorithm in ("grpo", "dpo"):
        with pytest.raises(ConfigError, match=r"adapters that go on learning.*groupwise export"):
            train(recipe(algorithm, files, tmp_path / algorithm, model=adapters))
    no_reference = recipe("grpo", files, tmp_path / "free", model=adapters, loss={"kl_coef": 0.0}, run={
        "directory": str(tmp_path / "free"), "num_steps": 1})  # fmt: skip
    session = train(no_reference)
    facts = json.loads((session.directory.checkpoint(1) / "adapter_config.json").read_text())
    assert facts["base_model_name_or_path"] == files["model"]  # adapters never stand on adapters
    with_all = recipe("grpo", files, tmp_path / "whole", model=adapters, lora=None, run={
        "directory": str(tmp_path / "whole"), "num_steps": 1})  # fmt: skip
    assert (train(with_all).directory.checkpoint(1) / "model.safetensors").exists()


def test_new_weights_and_adapters_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="new_model has random weights, on which adapters learn nothing"):
        recipe(
            "sft", {"model": "base"}, tmp_path, new_model={}, data={"source": "texts", "text": "worlds/diet.py:Diet"}
        )
