"""Activation checkpointing: the same bits from less memory, paid for only where gradients are recorded."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from groupwise.errors import UnsupportedModelError
from groupwise.models import activations
from groupwise.models.activations import activation_bytes, allow_checkpointing, are_dropped, available_memory
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Critic, Policy, load_policy, make_policy
from groupwise.models.reward_model import start_reward_model
from groupwise.training.gradient import accumulate

CPU = torch.device("cpu")
LENGTHS = [[(5, [7, 3, 9]), (2, [1])], [(4, [6])], [(30, [11, 2, 5, 8])], [(3, [4, 4]), (9, [1, 5])]]
"""For each micro-batch the lengths of its prompts and of their completions."""

Make = Callable[..., Policy]


@pytest.fixture
def make(make_model: Callable[..., Any], tokenizer: Any) -> Make:
    """make(setting, architecture, compute_dtype) -> a policy, always with the same weights."""

    def policy(setting: str, architecture: str = "qwen3", compute_dtype: str = "float32") -> Policy:
        config = ModelConfig.model_validate({"activation_checkpointing": setting, "compute_dtype": compute_dtype})
        return make_policy(make_model(architecture), tokenizer, config)

    return policy


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    yield torch.set_num_threads
    torch.set_num_threads(1)


def sequences(lengths: Sequence[tuple[int, list[int]]], seed: int = 0) -> list[Sequences]:
    random = torch.Generator().manual_seed(seed)

    def draw(length: int) -> list[int]:
        return torch.randint(5, 261, (length,), generator=random).tolist()

    return [Sequences(draw(prompt), [draw(length) for length in completions]) for prompt, completions in lengths]


def gradients(policy: Policy) -> list[Tensor]:
    """After a loss over all micro-batches."""
    weights: list[Tensor] = [weight for _, weight in policy.trainable()]
    for weight in weights:
        weight.grad = None

    def loss_of(lengths: Sequence[tuple[int, list[int]]]) -> tuple[Tensor, None]:
        logprobs, entropy, states = policy.token_logprobs(pack(sequences(lengths)), 0.9)
        return (logprobs * torch.linspace(-1, 1, len(logprobs))).sum() + entropy.sum() + states.square().mean(), None

    list(accumulate(loss_of, LENGTHS, weights, CPU))
    return [weight.grad for weight in weights if weight.grad is not None]


def slowly(value: Any) -> Any:
    """A variant that is not run every day."""
    return pytest.param(value, marks=pytest.mark.slow)


def computed(policy: Policy) -> list[int]:
    """Grows by one with every forward of a decoder layer's feed-forward part."""
    counter: list[int] = []
    for layer in policy.model.base_model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: counter.append(1))
    return counter


@pytest.mark.parametrize("num_threads", [slowly(1), 2])
@pytest.mark.parametrize("architecture", ["qwen3", "gemma", *map(slowly, ["qwen2", "llama", "mistral", "olmo2"])])
def test_gradients_have_the_same_bits(
    make: Make, threads: Callable[[int], None], architecture: str, num_threads: int
) -> None:
    threads(num_threads)
    kept, dropped = (gradients(make(setting, architecture)) for setting in ("off", "on"))
    assert len(kept) == len(dropped) > 10
    assert any(gradient.abs().max() > 1e-3 for gradient in kept)
    assert all(torch.equal(one, other) for one, other in zip(kept, dropped, strict=True))


@pytest.mark.filterwarnings("ignore:compute_dtype")
def test_gradients_have_the_same_bits_in_bf16(make: Make) -> None:
    kept, dropped = (gradients(make(setting, compute_dtype="bfloat16")) for setting in ("off", "on"))
    assert all(torch.equal(one, other) for one, other in zip(kept, dropped, strict=True))


def test_a_layer_is_computed_again_only_where_gradients_are_recorded(make: Make) -> None:
    policy = make("on")
    counter, packed = computed(policy), pack(sequences(LENGTHS[0]))
    with torch.no_grad():
        policy.token_logprobs(packed)
    with torch.inference_mode():
        policy.token_logprobs(packed)
    assert len(counter) == 2 * 2
    loss = policy.token_logprobs(packed).logprobs.sum()
    assert len(counter) == 3 * 2
    loss.backward()
    assert len(counter) == 4 * 2


def kept_numbers(policy: Policy) -> int:
    """Numbers that the graph of a forward keeps beside the weights, without those that layers keep for themselves."""
    sizes = {}

    def pack_hook(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack_hook, lambda tensor: tensor):
        loss = policy.token_logprobs(pack(sequences(LENGTHS[2]))).logprobs.sum()
    del loss
    return sum(sizes.values())


def test_less_is_kept(make: Make) -> None:
    assert kept_numbers(make("on")) < 0.5 * kept_numbers(make("off"))


def test_hooks_of_a_layer_run_once(make: Make) -> None:
    policy, calls = make("on"), []
    for layer in policy.model.base_model.layers:
        layer.register_forward_hook(lambda *_: calls.append(1))
    policy.token_logprobs(pack(sequences(LENGTHS[0]))).logprobs.sum().backward()
    assert len(calls) == 2


def test_a_copy_computes_with_its_own_weights(make: Make) -> None:
    policy = make("on")
    other = policy.copy()
    before = gradients(policy)
    with torch.no_grad():
        for _, weight in other.trainable():
            weight.mul_(1.5)
    assert not torch.equal(gradients(other)[0], before[0])
    assert all(torch.equal(one, two) for one, two in zip(gradients(policy), before, strict=True))


def test_a_saved_model_is_a_plain_one(make: Make, tmp_path: Path) -> None:
    policies = {setting: make(setting) for setting in ("off", "on")}
    for setting, policy in policies.items():
        policy.save(tmp_path / setting)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "on" / name).read_bytes() == (tmp_path / "off" / name).read_bytes()
    assert list(policies["on"].model.state_dict()) == list(policies["off"].model.state_dict())
    plain, ids = AutoModelForCausalLM.from_pretrained(tmp_path / "on"), torch.tensor([[3, 4, 5]])
    assert not any(type(module).__name__.startswith("Checkpointed") for module in plain.modules())
    assert plain(ids).logits.shape == (1, 3, 263)
    config = ModelConfig(path=str(tmp_path / "on"), activation_checkpointing="on")
    loaded, kept = gradients(load_policy(config)), gradients(policies["off"])
    assert all(torch.equal(one, other) for one, other in zip(loaded, kept, strict=True))


def test_a_model_that_is_let_go_is_freed_at_once(make: Make) -> None:
    policy = make("on")
    gradients(policy)
    layer = weakref.ref(policy.model.base_model.layers[0])
    gc.disable()
    try:
        del policy
        assert layer() is None
    finally:
        gc.enable()


def test_reward_models_and_critics_drop_activations_too(make: Make, tmp_path: Path) -> None:
    make("off").save(tmp_path / "model")
    [one, *_] = lengths = sequences(LENGTHS[0])
    counts = []
    for setting in ("off", "on"):
        config = ModelConfig.model_validate({"path": str(tmp_path / "model"), "activation_checkpointing": setting})
        reward_model, policy = start_reward_model(config), load_policy(config)
        counter = computed(reward_model)  # type: ignore[arg-type]
        reward_model.scores(lengths).sum().backward()
        counts.append(len(counter))
        counter, critic = computed(policy), Critic(policy, policy)
        critic.values(pack([one]), None).sum().backward()
        counts.append(len(counter))
    assert counts == [2, 2, 4, 4]


def test_the_available_memory_decides(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, packed = make("auto"), pack(sequences(LENGTHS[0]))
    counter, text = computed(policy), policy.model.config
    needed = activation_bytes(text, 4, packed.input_ids.shape[1], checkpointed=False)
    counts = []
    for available in (needed / activations.SHARE, 0.99 * needed / activations.SHARE):
        monkeypatch.setattr(activations, "available_memory", lambda _, available=available: available)
        counter.clear()
        policy.token_logprobs(packed).logprobs.sum().backward()
        counts.append(len(counter))
    assert counts == [2, 4]


def test_micro_batches_side_by_side_share_the_memory(
    make: Make, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads(2)
    policy = make("auto")
    largest = max(pack(sequences(lengths)).input_ids.shape[1] for lengths in LENGTHS)
    needed = activation_bytes(policy.model.config, 4, largest, checkpointed=False)
    counter = computed(policy)
    counts = []
    for available in (2 * needed / activations.SHARE, 1.98 * needed / activations.SHARE):
        monkeypatch.setattr(activations, "available_memory", lambda _, available=available: available)
        counter.clear()
        gradients(policy)
        counts.append(len(counter))
    assert counts == [4 * 2, 5 * 2]


@pytest.mark.parametrize(
    ("setting", "dropped"), [("on", (True, True)), ("off", (False, False)), ("auto", (False, True))]
)
def test_settings(setting: Any, dropped: tuple[bool, bool]) -> None:
    assert (are_dropped(setting, 50, 100.0), are_dropped(setting, 51, 100.0)) == dropped


def test_some_memory_is_available() -> None:
    assert 1 << 20 < available_memory(CPU) < 1 << 50


def test_layers_that_cannot_be_computed_again_are_named(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    monkeypatch.setattr(activations, "GradientCheckpointingLayer", nn.Bilinear)
    allow_checkpointing(model, "auto", torch.float32)
    with pytest.raises(UnsupportedModelError, match="activation_checkpointing = off"):
        allow_checkpointing(model, "on", torch.float32)
