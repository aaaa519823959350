"""Log-probabilities of given tokens from hidden states, without ever holding a [tokens, vocabulary] tensor."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

MAX_LOGITS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits that exist at one time, by device: 16 MiB in fp32; 256 MiB where products of few rows wait for the weights."""
GRADIENTS = 4
"""Memory for gradients of logits that go to the weight in one product, in chunks of fp32 logits: every sum there is as
large as the head."""


class TokenLogprobs(NamedTuple):
    """Outputs of the head at M tokens; both fp32, in nats."""

    logprobs: Tensor
    entropy: Tensor  # (M,) entropy of the distribution that the token is from


def token_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    temperature: float = 1.0,
    cap: float | None = None,
) -> TokenLogprobs:
    """Compute log softmax((h Wᵀ + b) / T) at the targets, and the entropy of that softmax, both differentiable.

    Logits are made for a chunk of tokens at a time and made again in the backward, so memory does not grow with
    tokens × vocabulary. Always fp32, whatever the dtype of the model.

    Args:
        hidden: (M, d) final hidden states.
        weight: (V, d) of the head.
        bias: (V,) or None.
        targets: (M,) token ids.
        temperature: T > 0; the same as in sampling, or the two distributions differ.
        cap: logits z become cap · tanh(z / cap) before T divides them; None: they stay (Gemma 2, arXiv:2408.00118).
    """
    parts = hidden, weight, bias, targets, temperature, cap
    return TokenLogprobs(*_ChunkedHead.apply(*parts))  # type: ignore[no-untyped-call]


def _log_softmax(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, cap: float | None
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities (m, V), and the slope (m, V) of capped logits by those that were not; None without a cap."""
    logits, slope = torch.nn.functional.linear(hidden, weight, bias).float(), None
    if cap is not None:
        squashed = logits.div_(cap).tanh_()
        logits, slope = squashed * cap, 1 - squashed.square()
    return torch.log_softmax(logits.div_(temperature) if temperature != 1 else logits, dim=-1), slope


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        cap: float | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, targets)
        ctx.temperature, ctx.cap = temperature, cap
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        entropy = torch.empty_like(logprobs)
        for rows in _chunks(0, len(hidden), _rows_at_a_time(weight)):
            all_logprobs, _ = _log_softmax(hidden[rows], weight, bias, temperature, cap)
            logprobs[rows] = all_logprobs.gather(1, targets[rows, None])[:, 0]
            entropy[rows] = -all_logprobs.exp().mul_(all_logprobs.clamp_min_(-1e30)).sum(-1)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        hidden, weight, bias, targets = ctx.saved_tensors
        on_logprobs, on_entropy = grads
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        grad_bias = None
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = torch.zeros_like(bias, dtype=torch.float32)
        has_entropy = bool(on_entropy.any())
        size = _rows_at_a_time(weight)
        together = size * GRADIENTS * 4 // hidden.element_size()
        room = hidden.new_empty(min(together, len(hidden)), len(weight))
        for span in _chunks(0, len(hidden), together):
            on_logits = room[: span.stop - span.start]
            for rows in _chunks(span.start, span.stop, size):
                all_logprobs, slope = _log_softmax(hidden[rows], weight, bias, ctx.temperature, ctx.cap)
                probabilities = all_logprobs.exp() if has_entropy else all_logprobs.exp_()
                gradient = (probabilities.clone() if has_entropy else probabilities).mul_(-on_logprobs[rows, None])
                gradient.scatter_add_(1, targets[rows, None], on_logprobs[rows, None])
                if has_entropy:  # dH/dz = -p (log p + H)
                    finite = all_logprobs.clamp_min(-1e30)
                    entropy = -(probabilities * finite).sum(-1, keepdim=True)
                    gradient -= on_entropy[rows, None] * probabilities * (finite + entropy)
                if slope is not None:
                    gradient *= slope
                on_logits[rows.start - span.start : rows.stop - span.start] = gradient.div_(ctx.temperature)
            grad_hidden[span] = on_logits @ weight
            if grad_weight is not None:
                if grad_weight.dtype == on_logits.dtype:
                    grad_weight.addmm_(on_logits.T, hidden[span])
                else:  # a sum of hundreds of chunks stalls in bf16
                    grad_weight += on_logits.T @ hidden[span]
            if grad_bias is not None:
                grad_bias += on_logits.sum(0, dtype=torch.float32)
        grad_weight = None if grad_weight is None else grad_weight.to(weight.dtype)
        grad_bias = None if grad_bias is None else grad_bias.to(bias.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _rows_at_a_time(weight: Tensor) -> int:
    return max(1, MAX_LOGITS[weight.device.type] // len(weight))


def _chunks(start: int, stop: int, size: int) -> list[slice]:
    return [slice(at, min(at + size, stop)) for at in range(start, stop, size)]
