"""A checkpoint loads unchanged in transformers, goes on exactly, and a full disk costs nothing that was finished."""

import dataclasses
import hashlib
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.errors import CheckpointError, ModelError
from groupwise.models import backbone
from groupwise.models.backbone import fingerprint
from groupwise.models.checkpoint import OPTIMIZER_STATE, TrainerState, load_trainer_state, save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy
from groupwise.runs.atomic import check_directory
from groupwise.training.optimizer import Optimizer, OptimizerConfig

SEQUENCES = [Sequences([5, 6, 7], [[8, 9, 1], [10, 1]])]


def train(policy: Policy, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        policy.token_logprobs(pack(SEQUENCES)).logprobs.sum().backward()
        optimizer.update(step)


def load(path: Path) -> Policy:
    return load_policy(ModelConfig(path=str(path), device="cpu"))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral"])
def test_a_checkpoint_loads_in_plain_transformers(
    tiny_policy: Callable[..., Policy], tmp_path: Path, architecture: str, tied: bool
) -> None:
    policy = tiny_policy(architecture, tie_word_embeddings=tied)
    save_checkpoint(tmp_path / "model", policy)
    assert "groupwise" not in (tmp_path / "model" / "config.json").read_text()
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values())
    assert model.config._attn_implementation != "groupwise"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer("2 × 3")["input_ids"] == policy.tokenizer("2 × 3")["input_ids"]
    ours = policy.token_logprobs(pack(SEQUENCES)).logprobs
    logits = model.eval()(torch.tensor([[5, 6, 7, 8, 9, 1]])).logits[0].log_softmax(-1)
    torch.testing.assert_close(ours[:3], logits[[2, 3, 4], [8, 9, 1]], atol=1e-5, rtol=0)


def test_a_checkpoint_loads_as_the_same_policy(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    policy = tiny_policy()
    save_checkpoint(tmp_path / "model", policy)
    again = load(tmp_path / "model")
    assert again.fingerprint() == policy.fingerprint()
    assert again.stop_ids == policy.stop_ids
    assert again.context_length == policy.context_length
    assert torch.equal(again.token_logprobs(pack(SEQUENCES)).logprobs, policy.token_logprobs(pack(SEQUENCES)).logprobs)
    with pytest.raises(CheckpointError, match="no trainer state"):  # it is a start, and no resume
        load_trainer_state(tmp_path / "model")
    optimizer = Optimizer(policy.trainable(), OptimizerConfig(), 6)
    save_checkpoint(tmp_path / "before the first update", policy, TrainerState({}, optimizer.state()))
    assert load_trainer_state(tmp_path / "before the first update").tensors == {}


def test_training_goes_on_exactly_from_a_checkpoint(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    config = OptimizerConfig(lr=1e-2, warmup_steps=3, schedule="cosine", weight_decay=0.1)
    policy = tiny_policy("qwen2", tie_word_embeddings=False)
    optimizer = Optimizer(policy.trainable(), config, 6)
    train(policy, optimizer, range(3))
    save_checkpoint(tmp_path / "step", policy, TrainerState({"step": 3, "best": None}, optimizer.state()))
    train(policy, optimizer, range(3, 6))
    state = load_trainer_state(tmp_path / "step")
    assert state.facts == {"step": 3, "best": None}
    resumed = load(tmp_path / "step")
    resumed_optimizer = Optimizer(resumed.trainable(), config, 6)
    resumed_optimizer.load_state(state.tensors, 3)
    train(resumed, resumed_optimizer, range(3, 6))
    assert resumed.fingerprint() == policy.fingerprint()
    assert resumed_optimizer.updates_done == optimizer.updates_done == 6


@pytest.mark.parametrize("name", ["model.safetensors", OPTIMIZER_STATE, "trainer_state.json", "config.json"])
def test_a_damaged_checkpoint_is_no_resume(tiny_policy: Callable[..., Policy], tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path / "step", tiny_policy(), TrainerState({"step": 1}, {"0.step": torch.ones(3)}))
    content = bytearray((tmp_path / "step" / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / "step" / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"damaged: {name}"):
        load_trainer_state(tmp_path / "step")


def test_the_fingerprint_changes_with_one_bit_of_any_weight(tiny_policy: Callable[..., Policy]) -> None:
    model = tiny_policy().model
    before = fingerprint(model.named_parameters())
    assert tiny_policy().fingerprint() == before
    for parameter in model.parameters():
        one = parameter.data.flatten()[:1]
        saved = one.clone()
        one.view(torch.int32).bitwise_xor_(1)
        assert fingerprint(model.named_parameters()) != before
        one.copy_(saved)
    assert fingerprint(model.named_parameters()) == before


@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
def test_the_fingerprint_in_pieces_is_that_of_whole_tensors(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(backbone, "FINGERPRINT_PIECE", piece)
    drawn = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    weights = {
        "whole": drawn, "turned": drawn.T, "some": drawn[:, ::3], "half": drawn.bfloat16(), "double": drawn.double(),
        "one": torch.tensor(-2.5), "none": torch.zeros(0, 3), "large": torch.full((500, 3), -1e38),
    }  # fmt: skip
    digest = hashlib.sha256()
    for name, weight in weights.items():
        bits = weight.contiguous().view(torch.int32 if weight.element_size() == 4 else torch.int16).long()
        digest.update(f"{name}:{bits.sum().item()}:{(bits * bits).sum().item()}".encode())
    assert fingerprint(weights.items()) == digest.hexdigest()[:16]


@contextmanager
def files_limited_to(num_bytes: int) -> Iterator[None]:
    """Writing more to a file fails, in Python and in the libraries below it, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [8, 32], ids=["optimizer state does not fit", "weights do not fit"])
def test_a_disk_that_fills_up_is_one_sentence_and_keeps_what_was_there(
    tiny_policy: Callable[..., Policy], tmp_path: Path, size: int
) -> None:
    policy = tiny_policy(hidden_size=size)
    moments = torch.zeros(200_000)
    save_checkpoint(tmp_path / "step", policy, TrainerState({"step": 1}, {"0.exp_avg": moments}))
    before = {path.name: path.read_bytes() for path in (tmp_path / "step").iterdir()}
    weights = len(before["model.safetensors"])
    limit = 60_000
    assert (weights > limit) == (size == 32)
    with files_limited_to(limit), pytest.raises(CheckpointError, match="step cannot be written") as caught:
        save_checkpoint(tmp_path / "step", policy, TrainerState({"step": 2}, {"0.exp_avg": moments + 1}))
    assert "\n" not in str(caught.value)
    assert "intact" in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"step"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "step").iterdir()} == before
    check_directory(tmp_path / "step")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *product(("config.json", "model.safetensors", "tokenizer.json"), ("removed", "cut")),
        *product(["config.json"], ({"num_hidden_layers": 3}, {"hidden_size": 16}, {"model_type": "x"})),
    ],
)
def test_a_damaged_model_directory_is_one_sentence(
    tiny_policy: Callable[..., Policy], tmp_path: Path, name: str, change: str | dict[str, Any]
) -> None:
    save_checkpoint(tmp_path / "model", tiny_policy())
    file = tmp_path / "model" / name
    if isinstance(change, dict):
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    elif change == "cut":
        file.write_bytes(file.read_bytes()[:500])
    else:
        file.unlink()
    for path, said in ((tmp_path / "model", "."), (tmp_path / "nowhere", "there is no such directory")):
        with pytest.raises(ModelError, match=said) as caught:
            load(path)
        known = ("cannot be loaded", "config.json, so it is not a Hugging", "is damaged: weights")
        assert any(text in str(caught.value) for text in known)
        assert str(path) in str(caught.value).partition("\n")[0] == str(caught.value)


def test_a_tokenizer_without_end_token_is_refused(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    policy = tiny_policy()
    save_checkpoint(tmp_path / "whole", policy)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "whole")
    tokenizer.eos_token = None
    save_checkpoint(tmp_path / "model", dataclasses.replace(policy, tokenizer=tokenizer))
    with pytest.raises(ModelError, match="end-of-sequence token"):
        load(tmp_path / "model")
