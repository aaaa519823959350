"""Weights in bf16 with fp32 masters: the trajectory is that of fp32, nothing small is lost, and a resume repeats it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from groupwise.errors import CheckpointError
from groupwise.models.checkpoint import TrainerState, load_trainer_state, save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy, load_policy, make_policy
from groupwise.training.gradient import accumulate
from groupwise.training.optimizer import Optimizer, OptimizerConfig

BF16 = ModelConfig(device="cpu", compute_dtype="bfloat16", weights_dtype="bfloat16")
ROWS = [Sequences([2, 3, 4], [[5, 6, 7], [8, 9]]), Sequences([10, 11], [[12, 13]])]


@pytest.fixture
def policy(make_model: Callable[..., Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> Policy:
    monkeypatch.setattr("groupwise.models.loading.bfloat16_cost", lambda: 1.0)
    return make_policy(make_model(), tokenizer, BF16)


def learn(policy: Policy, optimizer: Optimizer, step: int) -> None:
    def loss(row: Sequences) -> tuple[torch.Tensor, None]:
        return -policy.token_logprobs(pack([row])).logprobs.mean(), None

    list(accumulate(loss, ROWS, [weight for _, weight in policy.trainable()], policy.device))
    assert {weight.grad.dtype for _, weight in policy.trainable()} == {torch.float32}
    optimizer.update(step)


def test_masters_follow_fp32_exactly() -> None:
    start = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    rounded, exact = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float())
    config = OptimizerConfig(lr=1e-2, weight_decay=0.1)
    ours, theirs = (Optimizer([("w", weight)], config, 5) for weight in (rounded, exact))
    for step in range(5):
        gradient = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
        rounded.grad, exact.grad = gradient.clone(), gradient.clone()
        assert ours.update(step) == theirs.update(step)
        assert torch.equal(ours.state()["0.master"], exact)
        assert torch.equal(rounded, exact.bfloat16())


def test_updates_below_the_resolution_add_up() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))  # below 1 the next number is 1 - 1/256
    optimizer = Optimizer([("w", weight)], OptimizerConfig(lr=1e-3, max_grad_norm=0), 4)
    seen = []
    for step in range(4):
        weight.grad = torch.ones(2, 2)
        optimizer.update(step)
        seen.append(weight[0, 0].item())
    assert seen == [1.0, 0.99609375, 0.99609375, 0.99609375]  # masters 0.999, 0.998, 0.997, 0.996


def test_gradients_add_up_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    for side_by_side in (1, 2):
        monkeypatch.setattr("groupwise.training.gradient.num_micro_batches_at_once", lambda *_, n=side_by_side: n)
        weight = torch.nn.Parameter(torch.ones(1, 1, dtype=torch.bfloat16))
        Optimizer([("w", weight)], OptimizerConfig(), 1)
        scales = [1.0, *[1 / 512] * 8]  # in bf16 1 + 1/512 is 1
        list(accumulate(lambda s, w=weight: ((w * s).sum(), None), scales, [weight], torch.device("cpu")))
        assert weight.grad is not None
        assert weight.grad.item() == 1 + 8 / 512


def test_a_resume_repeats_to_the_bit(policy: Policy, tmp_path: Path) -> None:
    config = OptimizerConfig(lr=1e-4)
    optimizer = Optimizer(policy.trainable(), config, 4)
    for step in range(2):
        learn(policy, optimizer, step)
    save_checkpoint(tmp_path / "saved", policy, TrainerState({"updates_done": 2}, optimizer.state()))
    resumed = load_policy(BF16.at(tmp_path / "saved"))
    assert resumed.fingerprint() == policy.fingerprint()
    again = Optimizer(resumed.trainable(), config, 4)
    state = load_trainer_state(tmp_path / "saved")
    again.load_state(state.tensors, 2)
    for step in (2, 3):
        learn(policy, optimizer, step)
        learn(resumed, again, step)
    assert resumed.fingerprint() == policy.fingerprint()
    mine, theirs = optimizer.state(), again.state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    with pytest.raises(CheckpointError, match="does not round"):
        again.load_state(state.tensors, 2)  # the weights have moved on
    without = {key: tensor for key, tensor in state.tensors.items() if not key.endswith("master")}
    with pytest.raises(CheckpointError, match="weights_dtype must be what it was"):
        again.load_state(without, 2)


def test_the_model_and_its_reference_hold_two_bytes_a_weight(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    for holder in (policy, policy.copy().freeze()):
        assert {weight.dtype for _, weight in holder.state()} == {torch.bfloat16}
    assert {buffer.dtype for buffer in policy.model.buffers() if buffer.is_floating_point()} == {torch.float32}
    before = policy.fingerprint()
    with torch.no_grad():
        policy.trainable()[0][1].view(-1)[0].add_(1)
    assert policy.fingerprint() != before
    monkeypatch.setattr("groupwise.models.rounded.MOST_TWICE", 0)
    assert not policy.rounded()._products


def test_products_in_fp32_contradict_weights_in_bf16() -> None:
    with pytest.raises(ValueError, match=r'weights_dtype = "bfloat16" needs compute_dtype = "bfloat16"'):
        ModelConfig(weights_dtype="bfloat16", compute_dtype="float32")
