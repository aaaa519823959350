"""The chunked head equals log_softmax over whole logits in value and gradient, at a fraction of the memory."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.profiler import ProfilerActivity, profile

from groupwise.algorithms import logprobs as module
from groupwise.algorithms.logprobs import token_logprobs

TOKENS, WIDTH, VOCABULARY = 13, 6, 17


def inputs(dtype: torch.dtype = torch.float32, tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> list[Tensor]:
    """Hidden states, weight, bias and targets."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(tokens, WIDTH), (vocabulary, WIDTH), (vocabulary,)]
    tensors = [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes
    ]
    return [*tensors, torch.randint(vocabulary, (tokens,), generator=generator)]


def whole(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    everything = (linear(hidden, weight, bias) / temperature).log_softmax(-1)
    return everything.gather(1, targets[:, None])[:, 0], -(everything.exp() * everything).sum(-1)


@pytest.fixture(params=[1, 3 * VOCABULARY, 1 << 22], ids=["one token a chunk", "three tokens a chunk", "one chunk"])
def max_logits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "MAX_LOGITS", {"cpu": request.param})
    return int(request.param)


@pytest.mark.usefixtures("max_logits")
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("use", ["logprobs", "entropy", "both"])
def test_values_and_gradients_equal_whole_logits(use: str, with_bias: bool, temperature: float) -> None:
    hidden, weight, bias, targets = inputs()
    parts = [hidden, weight, *([bias] if with_bias else [])]
    exact = [part.detach().double().requires_grad_() for part in parts]
    ours = token_logprobs(hidden, weight, bias if with_bias else None, targets, temperature)
    theirs = whole(exact[0], exact[1], exact[2] if with_bias else None, targets, temperature)
    generator = torch.Generator().manual_seed(1)
    on = torch.randn(2, TOKENS, generator=generator)
    on[0] *= use != "entropy"
    on[1] *= use != "logprobs"
    grads = torch.autograd.grad((on[0] * ours[0] + on[1] * ours[1]).sum(), parts)
    exact_grads = torch.autograd.grad((on[0] * theirs[0] + on[1] * theirs[1]).sum(), exact)
    for a, b in zip((*ours, *grads), (*theirs, *exact_grads), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("max_logits")
@pytest.mark.parametrize("cap", [None, 1.2])
def test_gradients_equal_finite_differences(cap: float | None) -> None:
    hidden, weight, bias, targets = inputs(torch.float64, tokens=4, vocabulary=5)

    def head(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        logprobs, entropy = token_logprobs(*tensors, targets, 0.8, cap)
        return logprobs.double(), entropy.double()

    # the result is fp32 whatever the input, so the step is large and the tolerance that of fp32
    assert torch.autograd.gradcheck(head, (hidden, weight, bias), eps=3e-3, atol=3e-4, rtol=1e-3)


def test_capped_logits_by_hand() -> None:
    # logits 3 and -1 become 2 tanh(1.5) = 1.8103 and 2 tanh(-0.5) = -0.9242; log(1 + exp(-2.7345)) = 0.06291
    out = token_logprobs(torch.ones(1, 1), torch.tensor([[3.0], [-1.0]]), None, torch.tensor([0]), cap=2.0)
    torch.testing.assert_close(out.logprobs, torch.tensor([-0.06291]), atol=1e-5, rtol=0)


def test_only_what_needs_a_gradient_gets_one() -> None:
    hidden, weight, bias, targets = inputs()
    token_logprobs(hidden, weight.detach(), bias.detach(), targets).logprobs.sum().backward()
    assert hidden.grad is not None
    token_logprobs(hidden.detach(), weight, None, targets).logprobs.sum().backward()
    assert weight.grad is not None
    token_logprobs(hidden.detach(), weight.detach(), bias, targets).logprobs.sum().backward()
    assert bias.grad is not None


def test_no_tokens_are_no_logprobs() -> None:
    hidden, weight, bias, targets = inputs()
    out = token_logprobs(hidden[:0], weight, bias, targets[:0])
    assert out.logprobs.shape == out.entropy.shape == (0,)


@pytest.mark.parametrize("impossible", [-1e30, -math.inf])
def test_impossible_tokens_leave_the_entropy_finite(impossible: float) -> None:
    hidden, weight, _, targets = inputs()
    bias = torch.zeros(VOCABULARY)
    bias[3:] = impossible
    out = token_logprobs(hidden, weight, bias, targets.clamp(max=2))
    expected = whole(hidden, weight[:3], None, targets.clamp(max=2), 1.0)
    torch.testing.assert_close(out.logprobs, expected[0])
    torch.testing.assert_close(out.entropy, expected[1])
    (out.logprobs + out.entropy).sum().backward()
    assert hidden.grad.isfinite().all()


def test_a_model_in_bf16_still_gets_fp32_logprobs() -> None:
    hidden, weight, bias, targets = inputs(torch.bfloat16)
    out = token_logprobs(hidden, weight, bias, targets)
    assert out.logprobs.dtype is out.entropy.dtype is torch.float32
    expected, _ = whole(hidden.double(), weight.double(), bias.double(), targets, 1.0)
    assert (out.logprobs - expected).abs().max() < 0.05


def test_bf16_gradients_of_the_head_do_not_depend_on_the_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = 1024
    hidden = torch.ones(tokens, WIDTH, dtype=torch.bfloat16)  # every token pulls the same way, so nothing averages out
    weight = torch.zeros(VOCABULARY, WIDTH, dtype=torch.bfloat16)
    targets = torch.zeros(tokens, dtype=torch.long)
    found = []
    for max_logits in (tokens * VOCABULARY, VOCABULARY):
        monkeypatch.setattr(module, "MAX_LOGITS", {"cpu": max_logits})
        leaf, bias = weight.clone().requires_grad_(), weight[:, 0].clone().requires_grad_()
        token_logprobs(hidden, leaf, bias, targets).logprobs.sum().backward()
        assert leaf.grad.dtype is bias.grad.dtype is torch.bfloat16
        found.append(torch.cat([leaf.grad, bias.grad[:, None]], dim=1).float())
    expected = torch.full((WIDTH + 1,), tokens * (1 - 1 / VOCABULARY))
    torch.testing.assert_close(found[0][0], expected, rtol=0.01, atol=0)
    torch.testing.assert_close(found[1], found[0], rtol=0.01, atol=0)


def peak_allocated(work: Callable[[], Any]) -> int:
    """Most bytes of tensors that exist at one time beyond those before, from the profiler's allocation events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    current = peak = 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() == "[memory]":
            current += event.nbytes()
            peak = max(peak, current)
    return peak


def test_memory_does_not_grow_with_vocabulary_times_tokens() -> None:
    vocabulary, width = 151_936, 8

    def peak(tokens: int) -> int:
        hidden = torch.randn(tokens, width, requires_grad=True)
        weight = torch.randn(vocabulary, width, requires_grad=True)
        targets = torch.arange(tokens)
        return peak_allocated(lambda: token_logprobs(hidden, weight, None, targets).logprobs.sum().backward())

    few, many = peak(128), peak(512)
    whole_logits = 512 * vocabulary * 4
    assert few > vocabulary * 4  # the profiler sees the allocations
    assert many < whole_logits
    assert many < 1.1 * few
