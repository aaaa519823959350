"""Compiled layers: the same values and gradients but for rounding, the same bits on every number of threads."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models import compiled
from groupwise.models.compiled import allow_compiling, takes_compiled
from groupwise.models.config import ModelConfig
from groupwise.models.packed import Pack, Sequences, pack
from groupwise.models.policy import Policy, make_policy
from groupwise.ranks.group import RANKS
from groupwise.training.gradient import accumulate

Make = Callable[..., Any]
LENGTHS = [[(5, [7, 3, 9]), (2, [1])], [(4, [6])], [(30, [11, 2, 5, 8])], [(3, [4, 4]), (9, [1, 5])]]
"""For each micro-batch the lengths of its prompts and of their completions."""


def packs() -> list[Pack]:
    random = torch.Generator().manual_seed(0)

    def draw(length: int) -> list[int]:
        return torch.randint(5, 261, (length,), generator=random).tolist()

    return [pack([Sequences(draw(n), [draw(t) for t in lengths]) for n, lengths in group]) for group in LENGTHS]


def gradients(policy: Policy) -> list[Tensor]:
    """Of the sum of all log-probabilities."""
    weights: list[Tensor] = [weight for _, weight in policy.trainable()]
    for weight in weights:
        weight.grad = None
    list(accumulate(lambda one: (policy.token_logprobs(one).logprobs.sum(), None), packs(), weights, policy.device))
    return [weight.grad for weight in weights if weight.grad is not None]


@pytest.mark.slow  # a compiler runs
@pytest.mark.parametrize("checkpointing", ["off", "on"])
def test_values_and_gradients_are_those_of_the_plain_layers(
    make_model: Make, tokenizer: Any, checkpointing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_policy(make_model("qwen3"), tokenizer, ModelConfig())
    calls = []
    monkeypatch.setattr("groupwise.models.backbone.takes_compiled", lambda *a: calls.append(1) or takes_compiled(*a))
    config = ModelConfig.model_validate({"compile": True, "activation_checkpointing": checkpointing})
    fast = make_policy(make_model("qwen3"), tokenizer, config)
    assert calls
    assert takes_compiled(fast.model.base_model, torch.zeros(1, 2))
    for one in packs():
        torch.testing.assert_close(fast.token_logprobs(one).logprobs, plain.token_logprobs(one).logprobs)
    expected = gradients(plain)
    torch.testing.assert_close(gradients(fast), expected, rtol=1e-4, atol=1e-5)
    twice = gradients(fast)
    for number in (2, 3):
        torch.set_num_threads(number)
        try:
            assert all(map(torch.equal, gradients(fast), twice)), number
        finally:
            torch.set_num_threads(1)


@pytest.mark.slow
def test_a_copy_is_compiled_too(make_model: Make, tokenizer: Any) -> None:
    policy = make_policy(make_model("qwen3"), tokenizer, ModelConfig(compile=True))
    reference = policy.reference()
    with torch.no_grad():
        for one in packs():
            assert torch.equal(reference.token_logprobs(one).logprobs, policy.token_logprobs(one).logprobs)
    row = pack([Sequences([7], [[9]])])
    assert not takes_compiled(policy.model.base_model, row.input_ids)
    assert policy.token_logprobs(row).logprobs.shape == (1,)


@pytest.mark.slow
def test_without_a_compiler_it_says_so(
    make_model: Make, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from torch._inductor import config as inductor  # takes two seconds

    monkeypatch.setattr(inductor.cpp, "cxx", (None, str(tmp_path / "no-compiler")))
    monkeypatch.setattr(inductor, "force_disable_caches", True)
    compiled._compiled.cache_clear()
    torch._dynamo.reset()
    with pytest.raises(ModelError, match=r"torch cannot compile here: .*no-compiler.*needs a C"):
        make_policy(make_model("qwen3"), tokenizer, ModelConfig(compile=True))
    compiled._compiled.cache_clear()


def test_on_ranks_it_is_refused(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RANKS, "size", 2)
    with pytest.raises(
        UnsupportedModelError, match=r"model\.compile = true in a run of 2 ranks: allowed in one process"
    ):
        allow_compiling(make_model("qwen3"))


def test_a_model_without_layers_of_the_usual_form_is_refused() -> None:
    class Body(torch.nn.Module):
        pass

    model: Any = Body()
    model.base_model = Body()
    with pytest.raises(UnsupportedModelError, match="Body has no layers that could be compiled"):
        allow_compiling(model)


def test_adapters_are_refused() -> None:
    model: Any = torch.nn.Module()
    model.layer = torch.nn.Module()
    model.layer.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(2, 2)})
    with pytest.raises(UnsupportedModelError, match=r"model\.compile = true with \[lora\]"):
        allow_compiling(model)
