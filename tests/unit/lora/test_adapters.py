"""A model with adapters is W + s B A, in values, gradients and samples; without them it is the base, bit by bit."""

import copy
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupwise.algorithms.distillation import Comparison
from groupwise.models.adapters import adapted, adapters_used, add_products, is_adapter, strip
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Critic, Policy, load_policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.engine import Request
from groupwise.rollout.in_process import generate
from groupwise.rollout.sampling import SamplingConfig
from groupwise.training.gradient import accumulate

ROWS = [Sequences([5, 6, 7], [[8, 9, 1], [10, 1]]), Sequences([2, 3], [[4, 4, 5, 1]])]
Start = Callable[..., Policy]


def logprobs(policy: Policy) -> Tensor:
    return policy.token_logprobs(pack(ROWS)).logprobs


def exact(policy: Policy) -> Policy:
    """In float64, also within the norms, which are computed in float32 otherwise."""

    def norm(module: Any, states: Tensor) -> Tensor:
        scale = torch.rsqrt(states.square().mean(-1, keepdim=True) + module.variance_epsilon)
        return module.weight * states * scale  # type: ignore[no-any-return]

    policy.model.double()
    for module in policy.model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(norm, module)
    return policy


def without_adapters(policy: Policy) -> Tensor:
    """What its root gives as the context around the call says."""
    return policy.root(pack(ROWS), 1.0).logprobs


def test_a_layer_by_hand() -> None:
    import peft

    torch_layer = torch.nn.Linear(2, 2, bias=False)
    model = torch.nn.Sequential(torch_layer)
    peft.inject_adapter_in_model(peft.LoraConfig(r=1, lora_alpha=3, target_modules=["0"]), model, "default")
    layer = model[0]
    with torch.no_grad():
        layer.base_layer.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.lora_A["default"].weight.copy_(torch.tensor([[1.0, -1.0]]))
        layer.lora_B["default"].weight.copy_(torch.tensor([[2.0], [0.5]]))
    # W x = (1 · 1 + 2 · 3, 3 · 1 + 4 · 3) = (7, 15); A x = 1 - 3 = -2; s B A x = 3 · (-4, -1) = (-12, -3)
    assert model(torch.tensor([1.0, 3.0])).tolist() == [-5.0, 12.0]


def test_new_adapters_change_nothing_to_the_bit(base: str, start: Start) -> None:
    ours, theirs = start(base), load_policy(ModelConfig(path=base, device="cpu"))
    assert torch.equal(logprobs(ours), logprobs(theirs))
    assert {name for name, _ in ours.trainable()} == {n for n, _ in ours.state() if is_adapter(n)}
    assert len(ours.trainable()) == 2 * 2 * 7  # A and B of seven layers in two blocks
    assert sum(weight.numel() for _, weight in ours.trainable()) == 2 * 4 * (
        (32 + 32) + 2 * (32 + 16) + (32 + 32) + 2 * (32 + 48) + (48 + 32)
    )


def test_first_numbers_are_functions_of_the_seed_and_the_layer(base: str, start: Start) -> None:
    first, again, other = (start(base, seed=seed) for seed in (0, 0, 1))
    few = start(base, {"targets": ["q_proj"]})
    matrices = {name: layer.lora_A["default"].weight for name, layer in adapted(first.model).items()}
    for name, layer in adapted(few.model).items():  # whatever else is adapted
        assert name.endswith("q_proj")
        assert torch.equal(layer.lora_A["default"].weight, matrices[name])
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    assert len({matrix.flatten()[0].item() for matrix in matrices.values()}) == len(matrices)
    for matrix in matrices.values():  # uniform on ±1/√in: variance 1 / (3 in)
        assert matrix.abs().max() <= matrix.shape[1] ** -0.5
    scaled = torch.cat([matrix.flatten() * matrix.shape[1] ** 0.5 for matrix in matrices.values()])
    assert scaled.mean().abs() < 0.06
    assert scaled.square().mean().item() == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize("lora", [{}, {"targets": ["q_proj", "down_proj"], "alpha": 5}])
def test_gradients_are_the_merged_models_by_the_chain_rule(base: str, start: Start, lora: dict[str, Any]) -> None:
    """With G = dL/dW of the merged model, dB = s G Aᵀ and dA = s Bᵀ G: W + s B A is what the adapters train."""
    ours = exact(start(base, lora, learnt=True))
    theirs = exact(start(base, lora, learnt=True))
    add_products(theirs.model, strip(theirs.model))
    for policy in (ours, theirs):
        prediction = policy.token_logprobs(pack(ROWS))
        weights = torch.linspace(-1, 1, len(prediction.logprobs))
        (prediction.logprobs @ weights + 0.3 * prediction.entropy.sum()).backward()
    merged = dict(theirs.model.named_parameters())
    layers = adapted(ours.model)
    assert len(layers) == (14 if not lora else 4)
    for name, layer in layers.items():
        gradient, scale = merged[f"{name}.weight"].grad, layer.scaling["default"]
        assert scale == lora.get("alpha", 8) / 4
        first, second = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        for found, expected in ((first.grad, scale * second.T @ gradient), (second.grad, scale * gradient @ first.T)):
            assert expected.abs().max() > 1e-3
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert all(weight.grad is None for name, weight in ours.model.named_parameters() if not is_adapter(name))


def test_gradients_are_slopes(base: str, start: Start) -> None:
    policy = exact(start(base, learnt=True))
    toward = torch.randn(9, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def loss() -> Tensor:
        return (policy.completion_states(pack(ROWS)) * toward).sum()

    loss().backward()
    for name, weight in policy.trainable()[::9]:
        step = torch.zeros_like(weight)
        step.view(-1)[weight.numel() // 2] = 1e-6
        with torch.no_grad():
            weight += step
            above = loss()
            weight -= 2 * step
            below = loss()
            weight += step
        slope = ((above - below) / 2e-6).item()
        assert weight.grad.view(-1)[weight.numel() // 2].item() == pytest.approx(slope, rel=1e-5, abs=1e-7), name


def test_the_base_is_there_while_the_adapters_learn(base: str, start: Start) -> None:
    ours, theirs = start(base, learnt=True), load_policy(ModelConfig(path=base, device="cpu"))
    expected, reference = logprobs(theirs), ours.base()
    learnt = logprobs(ours)
    assert (learnt - expected).abs().max() > 0.1
    assert torch.equal(logprobs(reference), expected)
    assert not logprobs(reference).requires_grad
    assert torch.equal(logprobs(ours), learnt)
    teacher_states = reference.completion_states(pack(ROWS))
    assert torch.equal(teacher_states, theirs.completion_states(pack(ROWS)))


def test_one_thread_may_leave_the_adapters_out_while_another_uses_them(base: str, start: Start) -> None:
    policy = start(base, learnt=True)
    with_them, without = logprobs(policy), logprobs(policy.base())
    inside, done = threading.Event(), threading.Event()
    found: list[Tensor] = []

    def other() -> None:
        inside.wait(20)
        found.append(logprobs(policy))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with adapters_used(False):
        inside.set()
        assert done.wait(20)
        found += [without_adapters(policy), logprobs(policy)]
    thread.join()
    assert torch.equal(found[0], with_them)
    assert torch.equal(found[1], without)
    assert torch.equal(found[2], with_them)  # a policy computes what it is, whoever called it


def test_a_model_may_learn_from_its_own_base(base: str, start: Start) -> None:
    """The teacher's adapters are left out, the student's are not, though both are the same layers."""
    student = start(base, learnt=True)
    theirs = load_policy(ModelConfig(path=base, device="cpu"))
    comparison = Comparison("forward_kl", 0.5, 0, 1.0)
    found, expected = (student.divergence(pack(ROWS), t, comparison).divergence for t in (student.base(), theirs))
    assert torch.equal(found, expected)
    assert found > 0.1
    found.backward()
    assert all(weight.grad is not None for _, weight in student.trainable())


def test_micro_batches_side_by_side_ask_the_reference_without_disturbing_each_other(base: str, start: Start) -> None:
    policy = start(base, learnt=True)
    reference, rows = policy.base(), ROWS * 6

    def loss(row: Sequences) -> tuple[Tensor, Tensor]:
        packed = pack([row])
        policy_logprobs = policy.token_logprobs(packed).logprobs
        with torch.no_grad():
            reference_logprobs = reference.token_logprobs(packed).logprobs
        return (policy_logprobs - reference_logprobs).square().sum(), reference_logprobs

    weights = [weight for _, weight in policy.trainable()]
    results = []
    for num_threads in (1, 3):
        torch.set_num_threads(num_threads)
        try:
            references = list(accumulate(loss, rows, weights, policy.device))
        finally:
            torch.set_num_threads(1)
        results.append((torch.cat(references), [weight.grad.clone() for weight in weights]))
        policy.model.zero_grad(set_to_none=True)
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(one, other) for one, other in zip(results[0][1], results[1][1], strict=True))


def test_sampler_and_trainer_agree(base: str, start: Start) -> None:
    policy = start(base, learnt=True)
    requests = [Request((5, 6, 7), Draws(0, Purpose.TRAIN).keys("a", 8)), Request((9,), (1, 2, 3))]
    groups = generate(policy, requests, SamplingConfig(max_tokens=12))
    packed = pack([Sequences(r.token_ids, [s.token_ids for s in g]) for r, g in zip(requests, groups, strict=True)])
    trainer = policy.token_logprobs(packed).logprobs.detach().numpy()
    sampler = np.concatenate([sampled.logprobs for group in groups for sampled in group])
    assert np.abs(trainer - sampler).max() < 1e-4
    without = policy.base().token_logprobs(packed).logprobs.numpy()
    assert np.abs(trainer - without).max() > 0.1  # the adapters were sampled from


@pytest.mark.parametrize("setting", ["on", "off"])
def test_layers_computed_again_give_the_same_bits(base: str, start: Start, setting: str) -> None:
    kept, other = (start(base, learnt=True, activation_checkpointing=how) for how in ("off", setting))
    for policy in (kept, other):
        logprobs(policy).sum().backward()
    for (_, one), (_, two) in zip(kept.trainable(), other.trainable(), strict=True):
        assert one.grad.abs().max() > 0
        assert torch.equal(one.grad, two.grad)


@pytest.mark.parametrize("in_place", [True, False])
def test_adapters_on_weights_in_bf16_stay_in_fp32(
    base: str, start: Start, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    monkeypatch.setattr("groupwise.models.loading.bfloat16_cost", lambda: 1.0)
    monkeypatch.setattr("groupwise.models.rounded.MOST_TWICE", 0)
    policy = start(base, learnt=True, weights_dtype="bfloat16", compute_dtype="bfloat16")
    assert {weight.dtype for _, weight in policy.trainable()} == {torch.float32}
    assert {weight.dtype for name, weight in policy.state() if not is_adapter(name)} == {torch.bfloat16}
    logprobs(policy).sum().backward()
    assert {weight.grad.dtype for _, weight in policy.trainable()} == {torch.float32}
    # what sampling converts once, every forward of training converts anew: the same numbers
    packed = pack(ROWS)
    rounded = policy.rounded(in_place=in_place)
    with torch.no_grad(), policy.precision():
        plain = policy.hidden(packed.input_ids, packed.position_ids, packed.layout)
        with rounded:
            kept = policy.hidden(packed.input_ids, packed.position_ids, packed.layout)
    assert torch.equal(kept, plain)
    weights = {weight.data_ptr() for name, weight in policy.state() if not is_adapter(name)}
    assert {product._numbers[0].data_ptr() for product in rounded._products} <= weights  # none lies there twice


def test_a_critics_adapters_stand_on_the_policys_weights(base: str, start: Start) -> None:
    policy = start(base)
    critic = Critic(policy, policy.twin())
    mine = dict(policy.model.base_model.named_parameters())
    for name, weight in critic.trunk.named_parameters():  # type: ignore[union-attr]
        assert (weight.data_ptr() == mine[name].data_ptr()) is not is_adapter(name), name
    assert {name for name, _ in critic.trainable() if not is_adapter(name)} == {"head.weight", "head.bias"}
    with torch.no_grad():
        critic.head.weight.fill_(0.1)
    saved = {name: weight.detach().clone() for name, weight in critic.trainable()}
    critic.values(pack(ROWS), None).sum().backward()
    assert all(weight.grad is None for _, weight in policy.trainable())
    other = Critic(policy, start(base, seed=5))
    assert not torch.equal(other.values(pack(ROWS), None), critic.values(pack(ROWS), None))
    for name, weight in other.trainable():
        weight.data.copy_(saved[name])
    assert torch.equal(other.values(pack(ROWS), None), critic.values(pack(ROWS), None))


def test_a_copy_has_adapters_of_its_own(base: str, start: Start) -> None:
    policy = start(base, learnt=True)
    twin, before = policy.copy(), logprobs(policy).detach()
    with torch.no_grad():
        for _, weight in twin.trainable():
            weight.zero_()
    assert torch.equal(logprobs(policy), before)
    assert torch.equal(logprobs(twin), logprobs(policy.base()))
    assert copy.deepcopy(policy.root).adapters is not None


def test_the_fingerprint_sees_adapters_and_what_they_stand_on(base: str, start: Start) -> None:
    policy = start(base, learnt=True)
    seen = {policy.fingerprint()}
    for name, weight in policy.model.named_parameters():
        if name.endswith(("0.mlp.up_proj.base_layer.weight", "1.self_attn.q_proj.lora_A.default.weight")):
            with torch.no_grad():
                weight.view(torch.int32)[0, 0] ^= 1
            seen.add(policy.fingerprint())
    assert len(seen) == 3
