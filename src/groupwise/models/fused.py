"""Attention over a packed row, forward and backward: by torch's fused kernels, and by products where there is none.

The fused kernels (FlashAttention, Dao 2022, arXiv:2205.14135) attend within the causal sequences, on a processor one
after the other, on CUDA all in one call: they never hold more than a block of scores, give the log-sum-exp of each row,
and read slices of the packed row where they lie. What a completion sees of its prompt, and of what stands before all
prompts, is computed by rectangular calls. All are joined by their log-sum-exp, and the backward of each gets the joined
output, so its probabilities are those of the whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from groupwise.models.attention import Products, Scoring, join_sinks, sink_gradients


@dataclass(frozen=True, slots=True)
class Prefix:
    """Tokens that see others beside those of their own sequence, as completions their prompt; none is padded."""

    tokens: slice  # Of the completions, in the packed row
    prompt: slice  # What they see, in the packed row
    is_corner: bool = False
    """At the edge of a window: of n tokens and n that they see, token i sees those from i on."""
    depth: int = 0
    """Of prefixes of one depth that are no corners, no two have a token in common."""


@dataclass(frozen=True, slots=True)
class FusedLayout:
    """The layout of a packed row for training and prefill, at one window."""

    lengths: tuple[int, ...]
    """Tokens of the causal sequences that make up the row, in its order; each is at least 1."""
    prefixes: tuple[Prefix, ...]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        width, of_values, scale = key.shape[-1], value.shape[-1], scoring.scale
        kernel = None if scoring.cap else KERNELS.get(value.device.type)
        if kernel is None or not kernel.fits(value, max(width, of_values)):
            kernel, query, scale = Products(scoring.cap), query * scale, 1.0
        elif width != of_values:  # the kernel knows one width: zeros change neither a score nor the values beside them
            query, key = (pad(tensor, (0, max(0, of_values - width))) for tensor in (query, key))
            value = pad(value, (0, max(0, width - of_values)))
        # under autocast normalised queries and keys come in fp32 beside values in bf16: all take the values' dtype
        query, key = query.to(value.dtype), key.to(value.dtype)
        parts = self, kernel, scale, scoring.sinks
        out: Tensor = _FusedAttention.apply(query, key, value, *parts)  # type: ignore[no-untyped-call]
        return out[..., :of_values]

    def calls(self, at_once: bool) -> "Iterator[_Call]":
        """Yield the calls beside the causal one: one for each prefix; or for all of a depth, and for each corner."""
        whole = [prefix for prefix in self.prefixes if at_once and not prefix.is_corner]
        depths = sorted({prefix.depth for prefix in whole})
        groups = [[prefix for prefix in whole if prefix.depth == depth] for depth in depths]
        for prefixes in groups + [[prefix] for prefix in self.prefixes if prefix.is_corner or not at_once]:
            yield _Call([p.tokens for p in prefixes], [p.prompt for p in prefixes], prefixes[0].is_corner)


class _Call(NamedTuple):
    """Tokens that see others, range by range. What a corner sees is causal once both stand backwards."""

    tokens: list[slice]
    prompts: list[slice]
    is_corner: bool

    @property
    def lengths(self) -> list[tuple[int, ...]]:
        return [tuple(rows.stop - rows.start for rows in ranges) for ranges in (self.tokens, self.prompts)]

    def asked(self, *tensors: Tensor) -> list[Tensor]:
        """Return the rows of the tokens, as the kernel reads them."""
        return [self.turned(_rows(tensor, self.tokens)) for tensor in tensors]

    def seen(self, *tensors: Tensor) -> list[Tensor]:
        """Return the rows that they see, as the kernel reads them."""
        return [self.turned(_rows(tensor, self.prompts)) for tensor in tensors]

    def turned(self, rows: Tensor) -> Tensor:
        return rows.flip(0) if self.is_corner else rows


def _rows(tensor: Tensor, ranges: list[slice]) -> Tensor:
    return torch.cat([tensor[rows] for rows in ranges]) if len(ranges) > 1 else tensor[ranges[0]]


def _add(tensor: Tensor, ranges: list[slice], rows: Tensor) -> None:
    """Add rows to ranges, which may overlap, of a tensor."""
    for place, of_place in zip(ranges, rows.split([place.stop - place.start for place in ranges]), strict=True):
        tensor[place] += of_place


class _FusedAttention(torch.autograd.Function):
    """(N, H, D) queries, (N, Hkv, D) keys and values -> (N, H, D)."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layout: FusedLayout,
        kernel: "Kernel",
        scale: float,
        sinks: Tensor | None,
    ) -> Tensor:
        out, log_sum = kernel.forward(query, key, value, layout.lengths, layout.lengths, True, scale)
        for call in layout.calls(kernel.at_once):
            parts = *call.asked(query), *call.seen(key, value), *call.lengths, call.is_corner, scale
            prompt, log_prompt = kernel.forward(*parts)
            prompt, log_prompt = call.turned(prompt), call.turned(log_prompt)
            ours, log_ours = (_rows(tensor, call.tokens) for tensor in (out, log_sum))
            total = torch.logaddexp(log_ours, log_prompt)
            ours.mul_((log_ours - total).exp_()[..., None]).add_(prompt.mul_((log_prompt - total).exp_()[..., None]))
            for tensor, joined in ((out, ours), (log_sum, total)):
                for place, rows in zip(call.tokens, joined.split(call.lengths[0]), strict=True):
                    tensor[place] = rows
        if sinks is not None:
            join_sinks(sinks, out, log_sum[..., None])
        ctx.save_for_backward(query, key, value, out, log_sum, sinks)
        ctx.layout, ctx.kernel, ctx.scale = layout, kernel, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout: FusedLayout = ctx.layout
        kernel: Kernel = ctx.kernel
        query, key, value, out, log_sum, sinks = ctx.saved_tensors
        grad = grads[0].contiguous()
        on_sinks = None if sinks is None else sink_gradients(sinks, grad, out, log_sum[..., None])
        lengths = layout.lengths
        parts = grad, query, key, value, out, log_sum, lengths, lengths, True, ctx.scale
        on_query, on_key, on_value = kernel.backward(*parts)
        for call in layout.calls(kernel.at_once):
            asked, seen = call.asked(grad, query, out, log_sum), call.seen(key, value)
            parts = *asked[:2], *seen, *asked[2:], *call.lengths, call.is_corner, ctx.scale
            of_query, *of_seen = kernel.backward(*parts)
            _add(on_query, call.tokens, call.turned(of_query))
            for gradient, rows in zip((on_key, on_value), of_seen, strict=True):
                _add(gradient, call.prompts, call.turned(rows))
        return on_query, on_key, on_value, None, None, None, on_sinks


class Kernel(Protocol):
    """Attention within pairs of a range of queries and a range of keys.

    Both functions take tensors, the lengths of the ranges of queries and of keys, whether the pairs are causal, and the
    scale of scores. `forward` makes of (n, H, D) queries, (m, Hkv, D) keys and values the output (n, H, D) and the
    log-sum-exp (n, H) of the scores. `backward` gets gradient, queries, keys, values, output and log-sum-exp; it makes
    the gradients of queries, keys and values by the part of the attention that lies in the pairs.
    """

    @property
    def at_once(self) -> bool: ...

    def fits(self, values: Tensor, width: int) -> bool:
        """Tell whether it computes values of this dtype and device, and heads of this width."""
        ...

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]: ...

    def backward(self, *arguments: Any) -> Sequence[Tensor]: ...


class OneByOne:
    """The kernel for processors, which computes one pair."""

    at_once = False

    def fits(self, values: Tensor, width: int) -> bool:
        return True

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        *tensors, of_queries, of_keys, is_causal, scale = arguments
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        pairs = self.split(tensors, (of_queries, of_keys, of_keys))
        found = [attend(*_by_head(*pair), 0.0, is_causal, scale=scale) for pair in pairs]
        outs, log_sums = [out[0].transpose(0, 1) for out, _ in found], [rows[0].t() for _, rows in found]
        return (torch.cat(outs), torch.cat(log_sums)) if is_causal or len(outs) > 1 else (outs[0], log_sums[0])

    def backward(self, *arguments: Any) -> Sequence[Tensor]:
        *tensors, of_queries, of_keys, is_causal, scale = arguments
        differentiate, dtype = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward, tensors[0].dtype
        if dtype.itemsize == 2:  # the kernel takes two to six times as long for numbers of 16 bits
            tensors = [tensor.float() for tensor in tensors]
        pairs = self.split(tensors, (of_queries, of_queries, of_keys, of_keys, of_queries, of_queries))
        found = [
            differentiate(*_by_head(*pair), log_sum.t()[None], 0.0, is_causal, scale=scale) for *pair, log_sum in pairs
        ]
        gradients = ([tensor[0].transpose(0, 1) for tensor in of_all] for of_all in zip(*found, strict=True))
        return [torch.cat(rows).to(dtype) for rows in gradients]

    def split(self, tensors: Sequence[Tensor], lengths: Sequence[Sequence[int]]) -> Iterator[tuple[Tensor, ...]]:
        return zip(*(tensor.split(of) for tensor, of in zip(tensors, lengths, strict=True)), strict=True)


def _by_head(*tensors: Tensor) -> list[Tensor]:
    """(n, H, D) -> (1, H, n, D), without a copy."""
    return [tensor.transpose(0, 1)[None] for tensor in tensors]


class AtOnce:
    """The kernel for CUDA, which computes all pairs; it knows numbers of 16 bits alone, on Ampere or newer."""

    at_once = True

    def fits(self, values: Tensor, width: int) -> bool:
        is_known = values.element_size() == 2 and width % 8 == 0 and width <= WIDEST
        return is_known and torch.cuda.get_device_capability(values.device) >= (8, 0)

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        *tensors, of_queries, of_keys, is_causal, scale = arguments
        ends = (_ends(lengths, tensors[0].device) for lengths in (of_queries, of_keys))
        parts = *tensors, *ends, max(of_queries), max(of_keys), 0.0, is_causal, False
        out, log_sum, *_ = torch.ops.aten._flash_attention_forward(*parts, scale=scale)
        return out, log_sum.t()

    def backward(self, *arguments: Any) -> Sequence[Tensor]:
        *tensors, log_sum, of_queries, of_keys, is_causal, scale = arguments
        device, before = log_sum.device, torch.get_deterministic_debug_mode()
        ends = (_ends(lengths, device) for lengths in (of_queries, of_keys))
        of_dropout = torch.zeros(2, dtype=torch.uint64, device=device), torch.zeros(0, device=device)
        parts = *tensors, log_sum.t().contiguous(), *ends, max(of_queries), max(of_keys), 0.0, is_causal, *of_dropout
        torch.set_deterministic_debug_mode("error")  # queries' gradients added with atomics would round as they come
        try:
            gradients: Sequence[Tensor] = torch.ops.aten._flash_attention_backward(*parts, scale=scale)
        finally:
            torch.set_deterministic_debug_mode(before)
        return gradients


@lru_cache(maxsize=256)
def _ends(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Return (S + 1,) the ends of ranges, 0 before them: one transfer for all layers."""
    return torch.from_numpy(np.cumsum((0, *lengths)).astype(np.int32)).to(device)


KERNELS: dict[str, Kernel] = {"cpu": OneByOne(), "cuda": AtOnce()}
"""The fused kernels, by the kind of device."""
WIDEST = 256
"""Widest head of the kernel for CUDA, in multiples of 8."""
