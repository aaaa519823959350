"""Attention of a packed row on a processor: torch's fused kernel, called for one causal sequence after the other.

The kernel (the loop over blocks of FlashAttention, Dao 2022, arXiv:2205.14135) never holds more than a block of scores,
gives the log-sum-exp of each row, and reads slices of the packed row where they lie: nothing is gathered or padded.
What a completion sees of its prompt is a second, rectangular call. The two parts are joined by their log-sum-exp, and
the backward of each part gets the joined output and log-sum-exp, so its probabilities are those of the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from groupwise.models.attention import Prefix, Scoring, join_sinks, sink_gradients

_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, slots=True)
class FusedLayout:
    """The layout of a packed row for training and prefill, on a processor."""

    lengths: tuple[int, ...]
    """Tokens of the causal sequences that make up the row, in its order; each is at least 1."""
    prefixes: tuple[Prefix, ...]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        # under autocast normalised queries and keys come in fp32 beside values in bf16: all take the values' dtype
        query, key = query.to(value.dtype), key.to(value.dtype)
        width, of_values = key.shape[-1], value.shape[-1]
        if width != of_values:  # the kernel knows one width: zeros change neither a score nor the values beside them
            query, key = (pad(tensor, (0, max(0, of_values - width))) for tensor in (query, key))
            value = pad(value, (0, max(0, width - of_values)))
        parts = self, scoring.scale, scoring.sinks
        out: Tensor = _FusedAttention.apply(query, key, value, *parts)  # type: ignore[no-untyped-call]
        return out[..., :of_values]


class _FusedAttention(torch.autograd.Function):
    """(N, H, D) queries, (N, Hkv, D) keys and values -> (N, H, D)."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: FusedLayout, scale: float, sinks: Tensor | None
    ) -> Tensor:
        parts = (tensor.split(layout.lengths) for tensor in (query, key, value))
        pieces = [_attend(*part, causal=True, scale=scale) for part in zip(*parts, strict=True)]
        out, log_sum = (torch.cat(rows) for rows in zip(*pieces, strict=True))
        for prefix in layout.prefixes:
            ours, log_ours = out[prefix.tokens], log_sum[prefix.tokens]
            seen = query[prefix.tokens], key[prefix.prompt], value[prefix.prompt]
            prompt, log_prompt = _turned(prefix, _attend(*_turned(prefix, seen), causal=prefix.is_corner, scale=scale))
            total = torch.logaddexp(log_ours, log_prompt)
            ours.mul_((log_ours - total).exp_()[..., None]).add_(prompt.mul_((log_prompt - total).exp_()[..., None]))
            log_ours.copy_(total)
        if sinks is not None:
            join_sinks(sinks, out, log_sum[..., None])
        ctx.save_for_backward(query, key, value, out, log_sum, sinks)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout: FusedLayout = ctx.layout
        query, key, value, out, log_sum, sinks = ctx.saved_tensors
        grad = grads[0].contiguous()
        on_sinks = None if sinks is None else sink_gradients(sinks, grad, out, log_sum[..., None])
        parts = (tensor.split(layout.lengths) for tensor in (grad, query, key, value, out, log_sum))
        pieces = [_gradients(*part, causal=True, scale=ctx.scale) for part in zip(*parts, strict=True)]
        on_query, on_key, on_value = (torch.cat(rows) for rows in zip(*pieces, strict=True))
        for prefix in layout.prefixes:
            tokens, prompt = prefix.tokens, prefix.prompt
            part = grad[tokens], query[tokens], key[prompt], value[prompt], out[tokens], log_sum[tokens]
            of_query, of_key, of_value = _turned(
                prefix, _gradients(*_turned(prefix, part), causal=prefix.is_corner, scale=ctx.scale)
            )
            on_query[tokens] += of_query
            on_key[prompt] += of_key
            on_value[prompt] += of_value
        return on_query, on_key, on_value, None, None, on_sinks


def _turned(prefix: Prefix, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Tensors whose tokens stand backwards at the edge of a window: what its tokens see is causal then."""
    return [tensor.flip(0) for tensor in tensors] if prefix.is_corner else tensors


def _attend(query: Tensor, key: Tensor, value: Tensor, *, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """(n, H, D) queries, (m, Hkv, D) keys and values -> output (n, H, D) and log-sum-exp (n, H) in fp32 or above."""
    out, log_sum = _FORWARD(*_by_head(query, key, value), 0.0, causal, scale=scale)
    return out[0].transpose(0, 1), log_sum[0].t()


def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sum: Tensor, *, causal: bool, scale: float
) -> Sequence[Tensor]:
    """Gradients of queries (n, H, D), keys and values (m, Hkv, D) of the part of the attention between these."""
    tensors = *_by_head(grad, query, key, value, out), log_sum.t()[None]
    return [tensor[0].transpose(0, 1) for tensor in _BACKWARD(*tensors, 0.0, causal, scale=scale)]


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """(n, H, D) -> (1, H, n, D), without a copy."""
    return [tensor.transpose(0, 1)[None] for tensor in tensors]
