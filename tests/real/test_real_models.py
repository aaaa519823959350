"""Real weights: what we compute, sample, train and write is what transformers computes."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.config import parse
from groupwise.models import attention
from groupwise.models.config import ModelConfig
from groupwise.models.export import export
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import TRAINERS

pytestmark = pytest.mark.real
RELATIVE = 1e-4
LARGEST_WHOLE = 1 << 30  # Weights with their gradients and moments do not fit in a laptop's memory beyond


@contextmanager
def transformers_own(policy: Policy) -> Iterator[Any]:
    policy.model.set_attn_implementation("eager")
    try:
        yield policy.model
    finally:
        policy.model.set_attn_implementation(attention.NAME)


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"largest difference of logits, relative: {difference:.1e}")
    assert difference <= RELATIVE


@torch.no_grad()
def test_logits_are_those_of_transformers(policy: Policy, text: str) -> None:
    ids = policy.tokenizer(text).input_ids
    groups = [
        Sequences(ids[:700], [ids[700:740], ids[900:960], ids[705:707]]),  # beyond Gemma's window of 512
        Sequences(ids[:5], [ids[5:20], ids[50:90]]),
    ]
    ours = policy.next_logits(policy.completion_states(pack(groups)))
    theirs = []
    with transformers_own(policy) as model:
        for group in groups:
            for completion in group.completions:
                row = torch.tensor([[*group.prompt, *completion]])
                kept = len(completion) + 1
                theirs.append(model(row, use_cache=False, logits_to_keep=kept).logits[0, :-1])
    assert_near(ours, torch.cat(theirs))


@torch.no_grad()
def test_the_greedy_continuation_is_that_of_generate(policy: Policy, text: str) -> None:
    for num_tokens in (40, 600):
        prompt = policy.tokenizer(text).input_ids[:num_tokens]
        ours = generate(policy, [Request(tuple(prompt), (1,))], SamplingConfig(temperature=0, max_tokens=256))[0][0]
        with transformers_own(policy) as model:
            theirs = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                max_new_tokens=256,
                do_sample=False,
                eos_token_id=sorted(policy.stop_ids),
            )[0, num_tokens:]
        print(f"{num_tokens} tokens of prompt: {len(ours.token_ids)} of {len(theirs)} tokens")
        assert ours.token_ids.tolist() == theirs.tolist()


def run(file: Path, directory: Path, lora: bool) -> Any:
    (directory.parent / "rewards.py").write_text(
        "def reward(completion):\n    return len(completion) % 97 / 97\n"  # differs within a group
    )
    values: dict[str, Any] = {
        "algorithm": "grpo",
        "run": {"directory": str(directory), "num_steps": 2, "checkpoint_every": 1},
        "model": {"path": str(file), "device": "cpu", "compute_dtype": "float32"},
        "task": {"kind": "arithmetic", "num_problems": 12, "num_eval_problems": 2, "template": {"chat": False}},
        "verifier": {"kind": f"{directory.parent / 'rewards.py'}:reward"},
        "sampling": {"max_tokens": 16},
        "grpo": {"prompts_per_step": 2, "group_size": 3},
        "optimizer": {"lr": 1e-4},
        "evaluation": {"every": 9, "num_problems": 2, "num_samples": 1, "test_problems": 0},
    }
    if lora:
        values["lora"] = {"rank": 4, "alpha": 8}
    trainer = TRAINERS.find("grpo")
    return trainer.run(parse(trainer.recipe, values), False, lambda report: None)


@pytest.mark.filterwarnings("ignore:.*reference answers")
@pytest.mark.parametrize("lora", [True, False], ids=["adapters", "whole"])
def test_a_run_is_resumed_exported_and_loads_again(
    file: Path, text: str, lora: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not lora and file.stat().st_size > LARGEST_WHOLE:
        pytest.skip("its weights, gradients and moments are more than a laptop's memory")
    session = run(file, tmp_path / "run", lora)
    ids = session.policy.tokenizer(text).input_ids[:60]
    packed = pack([Sequences(ids[:40], [ids[40:]])])
    with torch.no_grad():
        ours = session.policy.next_logits(session.policy.completion_states(packed)).clone()
    records = RunDirectory(tmp_path / "run")
    steps = [line for line in records.metrics.lines() if line["kind"] == "step"]
    assert all(step["logprob_difference"] < 1e-4 and step["grad_norm"] > 0 for step in steps)
    fingerprint, ledger = session.policy.fingerprint(), records.ledger.path.read_bytes()
    del session
    checkpoints, plain = records.path / "checkpoints", tmp_path / "plain"
    shutil.rmtree(checkpoints / "step-000002")  # as after a kill; in place, because a copy would be gigabytes
    (records.path / "finished.json").unlink()
    (checkpoints / "best").unlink(missing_ok=True)
    assert run(file, records.path, lora).policy.fingerprint() == fingerprint
    assert records.ledger.path.read_bytes() == ledger
    (checkpoints / "best").unlink(missing_ok=True)
    shutil.rmtree(checkpoints / "step-000001")
    export(records.path, plain, gguf="f32")
    shutil.rmtree(checkpoints)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "cache"))
    for path in (plain, next(plain.glob("*.gguf"))):
        again = load_policy(ModelConfig(path=str(path), device="cpu", compute_dtype="float32"))
        with torch.no_grad():
            assert_near(ours, again.next_logits(again.completion_states(packed)))
        del again
        for weights in plain.glob("*.safetensors"):
            weights.unlink()
    shutil.rmtree(tmp_path)
