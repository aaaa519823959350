"""The one attention function of the package, for training, prefill and decode.

transformers models dispatch attention by name; ours is registered as "groupwise" and does what the `layout` object in
the model call's keyword arguments says. Inputs are packed: one row `[1, H, N, D]` holds all N tokens of all
sequences, so every linear layer of the model works on real tokens only. Where no fused kernel computes a layer,
`Products` does; there sequences of like length are gathered into `Blocks`, the only place where padding exists.

Dropout is refused by name rather than computed wrongly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface

from groupwise.errors import UnsupportedModelError

NAME = "groupwise"


@dataclass(frozen=True, slots=True)
class Scoring:
    """The way a layer makes probabilities of products."""

    scale: float  # Of a product of query and key
    window: int | None = None  # Positions that a token sees, its own the last of them; None: all before it
    sinks: Tensor | None = None  # (H,) scores of a key without a value, which every query meets (gpt-oss)
    cap: float | None = None  # Scores s become cap · tanh(s / cap) (Gemma 2)


class Layout(Protocol):
    """The attention of a packed row: it knows which tokens attend to which."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """Attend: (N, H, D) queries, (N, Hkv, D) keys and values of one layer -> (N, H, D)."""
        ...


def groupwise_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention for transformers: (B, H, n, D) queries in, (B, n, H, D) out; the layout sees B · n tokens."""
    if dropout:
        raise UnsupportedModelError(f"{type(module).__name__} uses attention dropout {dropout}: set it to 0 to train")
    if layout is None or attention_mask is not None:
        raise UnsupportedModelError("the groupwise attention needs a layout and takes no attention mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scoring = Scoring(scale, options.get("sliding_window"), options.get("s_aux"), options.get("softcap"))
    layer: int = module.layer_idx  # type: ignore[assignment]
    num_rows = len(query)
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
    return layout.attend(layer, query, key, value, scoring).unflatten(0, (num_rows, -1)), None


AttentionInterface.register(NAME, groupwise_attention)


TILE = 48  # Fewest query rows of a causal product: what lies above the diagonal is computed only within a tile
MOST_TILES = 8
MAX_SCORES = 1 << 20
"""Attention scores per head that one product may hold; bounds memory, keeps the working set near the cache."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sequences that are computed in one product, each causal within itself, as indices into the packed row.

    Indices of padding point at token 0; what is computed for them is never read.
    """

    tokens: Tensor  # (S, R) packed index of each token of S sequences, the longest of R tokens
    padding: Tensor | None  # (S, R, 1, 1) True where `tokens` is padding; None when nothing is padded

    def gather(self, packed: Tensor) -> Tensor:
        """(N, H, D) -> (S, R, H, D)."""
        return packed.flatten(1).index_select(0, self.tokens.flatten()).view(*self.tokens.shape, *packed.shape[1:])

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Beginnings and ends of rows of queries that are computed together; they see the keys up to their end."""
        length = self.tokens.shape[1]
        size = max(TILE, -(-length // MOST_TILES))
        return ((start, min(start + size, length)) for start in range(0, length, size))

    def scores(self, query: Tensor, key: Tensor, start: int, cap: float | None) -> Tensor:
        """Causal scores (S, Hkv, rows * rep, stop) in fp32 of the queries from `start`; -inf above the diagonal."""
        scores = _scores(query, key, cap)
        rows = key.shape[2] - start
        above = torch.ones(rows, rows, dtype=torch.bool, device=query.device).triu_(1)
        scores[..., start:].masked_fill_(above.repeat_interleave(query.shape[2] // rows, 0), -torch.inf)
        return scores


class InBlocks(NamedTuple):
    """The causal sequences of a row in blocks."""

    blocks: tuple[Blocks, ...]  # Every token of the row is in one of them
    inverse: Tensor  # (N,) row of each token in the concatenated rows of all blocks

    def in_order(self, parts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return what was made of every block, in the order of the row."""
        return [torch.cat(rows).index_select(0, self.inverse) for rows in zip(*parts, strict=True)]


@lru_cache(maxsize=64)
def in_blocks(lengths: tuple[int, ...], device: torch.device, max_scores: int) -> InBlocks:
    """Put sequences of similar length together, so that little is padded and no product holds more scores."""
    starts, chunks = np.cumsum((0, *lengths)), list[list[int]]()
    for run in sorted(range(len(lengths)), key=lambda run: -lengths[run]):
        if not chunks or (len(chunks[-1]) + 1) * lengths[chunks[-1][0]] ** 2 > max_scores:
            chunks.append([])
        chunks[-1].append(run)
    blocks, rows = list[Blocks](), np.zeros(starts[-1], np.int64)
    before = 0
    for chunk in chunks:
        offsets = np.arange(lengths[chunk[0]])[None]
        padded = offsets >= np.array([lengths[run] for run in chunk])[:, None]
        tokens = np.where(padded, 0, starts[chunk][:, None] + offsets)
        rows[tokens[~padded]] = before + np.flatnonzero(~padded)
        before += tokens.size
        padding = torch.from_numpy(padded[:, :, None, None]).to(device) if padded.any() else None
        blocks.append(Blocks(torch.from_numpy(tokens).to(device), padding))
    return InBlocks(tuple(blocks), torch.from_numpy(rows).to(device))


def _scores(query: Tensor, key: Tensor, cap: float | None) -> Tensor:
    scores: Tensor = (query @ key.transpose(-1, -2)).float()
    return soft_capped(scores, cap) if cap else scores


def soft_capped(scores: Tensor, cap: float) -> Tensor:
    """Return cap · tanh(s / cap) of scores or logits s, which are overwritten; its slope is 1 - (that / cap)²."""
    return scores.div_(cap).tanh_().mul_(cap)


def _by_head(tokens: Tensor, num_kv_heads: int) -> Tensor:
    """(..., L, H, D) -> (..., Hkv, L * rep, D): queries that share a key head stand together."""
    heads: Tensor = tokens.unflatten(-2, (num_kv_heads, -1)).transpose(-3, -4)
    return heads.contiguous().flatten(-3, -2)


def _by_token(heads: Tensor, length: int) -> Tensor:
    """(..., Hkv, L * rep, D) -> (..., L, H, D)."""
    tokens: Tensor = heads.unflatten(-2, (length, -1)).transpose(-3, -4)
    return tokens.flatten(-3, -2)


@dataclass(frozen=True, slots=True)
class Products:
    """The kernel (`models.fused.Kernel`) of all devices and layers, by plain products; queries come scaled.

    Scores exist for one product at a time; the backward makes the probabilities again from the log-sum-exp. It is that
    of FlashAttention (Dao 2022, arXiv:2205.14135, algorithm 4): dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)).
    """

    cap: float | None
    at_once = False

    def fits(self, values: Tensor, width: int) -> bool:
        return True

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        query, key, value, of_queries, _, is_causal, _ = arguments
        if is_causal:
            rows = in_blocks(of_queries, query.device, MAX_SCORES)
            out, log_sum = rows.in_order([_block_forward(query, key, value, one, self.cap) for one in rows.blocks])
        else:  # all queries of a group meet the prompt's keys in one product
            q, k, v = (_by_head(tensor, key.shape[1]) for tensor in (query, key, value))
            out, log_sum = (_by_token(rows, len(query)) for rows in _attend(_scores(q, k, self.cap), v))
        return out, log_sum[..., 0]

    def backward(self, *arguments: Any) -> Sequence[Tensor]:
        grad, query, key, value, out, log_sum, of_queries, _, is_causal, _ = arguments
        delta = (grad.float() * out.float()).sum(-1, keepdim=True).to(grad.dtype)
        tensors = query, key, value, grad, delta, log_sum[..., None]
        if is_causal:
            rows = in_blocks(of_queries, query.device, MAX_SCORES)
            return rows.in_order([_block_backward(*tensors, block, self.cap) for block in rows.blocks])
        q, k, v, g, d, log_sums = (_by_head(tensor, key.shape[1]) for tensor in tensors)
        made = _gradients(_scores(q, k, self.cap), q, k, v, g, d, log_sums, self.cap)
        return [_by_token(part, len(tensor)) for part, tensor in zip(made, (query, key, value), strict=True)]


def join_sinks(sinks: Tensor, out: Tensor, log_sum: Tensor) -> None:
    """Add a key without a value to the output (N, H, D) and the log-sum-exp (N, H, 1), in place."""
    total = torch.logaddexp(log_sum, sinks.to(log_sum.dtype)[:, None])
    out.mul_((log_sum - total).exp_())
    log_sum.copy_(total)


def sink_gradients(sinks: Tensor, grad: Tensor, out: Tensor, log_sum: Tensor) -> Tensor:
    """Gradient (H,) of the sinks: dS = P (dO V - dO O) with V = 0, over the queries; of the joined (N, H, 1)."""
    p = (sinks.to(log_sum.dtype)[:, None] - log_sum).exp_()
    return -(p * (grad.float() * out.float()).sum(-1, keepdim=True)).sum((0, 2)).to(sinks.dtype)


def _attend(scores: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (..., n, m), overwritten, and values (..., m, D) -> output (..., n, D) and log-sum-exp (..., n, 1)."""
    highest = scores.amax(-1, keepdim=True)
    weights = scores.sub_(highest).exp_()
    total = weights.sum(-1, keepdim=True)
    return (weights.to(value.dtype) @ value).div_(total.to(value.dtype)), highest.add_(total.log_())


def _gradients(
    scores: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    delta: Tensor,
    log_sum: Tensor,
    cap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries (..., n, D), keys (..., m, D) and values (..., m, D); scores (..., n, m) are overwritten."""
    slope = 1 - (scores.clamp_min(-cap) / cap).square_() if cap else None  # 0 where a score is -inf
    p = scores.sub_(log_sum).exp_().to(query.dtype)
    on_scores = (grad @ value.transpose(-1, -2)).sub_(delta).mul_(p)
    if slope is not None:
        on_scores.mul_(slope)
    return on_scores @ key, on_scores.transpose(-1, -2) @ query, p.transpose(-1, -2) @ grad


def _block_forward(
    query: Tensor, key: Tensor, value: Tensor, block: Blocks, cap: float | None
) -> tuple[Tensor, Tensor]:
    """Rows (S*R, H, D) of the output and (S*R, H, 1) of the log-sum-exp."""
    heads, rep = key.shape[1], query.shape[1] // key.shape[1]
    q, k, v = (_by_head(block.gather(tensor), heads) for tensor in (query, key, value))
    parts = [
        _attend(block.scores(q[:, :, start * rep : stop * rep], k[:, :, :stop], start, cap), v[:, :, :stop])
        for start, stop in block.tiles()
    ]
    length = block.tokens.shape[1]
    out, log_sum = (_by_token(torch.cat(rows, 2), length).flatten(0, 1) for rows in zip(*parts, strict=True))
    return out, log_sum


def _block_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    delta: Tensor,
    log_sum: Tensor,
    block: Blocks,
    cap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient rows of the block's queries (S*R, H, D), keys and values (S*R, Hkv, D)."""
    heads, rep = key.shape[1], query.shape[1] // key.shape[1]
    q, k, v, g, d = (_by_head(block.gather(tensor), heads) for tensor in (query, key, value, grad, delta))
    log_sums = block.gather(log_sum)
    if block.padding is not None:  # what stands at padding has probability 0, so it has no gradient and gives none
        log_sums.masked_fill_(block.padding, torch.inf)
    log_sums = _by_head(log_sums, heads)
    on_query, on_key, on_value = [], torch.zeros_like(k), torch.zeros_like(v)
    for start, stop in block.tiles():
        q_, g_, d_, log_ = (tensor[:, :, start * rep : stop * rep] for tensor in (q, g, d, log_sums))
        k_, v_ = k[:, :, :stop], v[:, :, :stop]
        of_query, of_key, of_value = _gradients(block.scores(q_, k_, start, cap), q_, k_, v_, g_, d_, log_, cap)
        on_query.append(of_query)
        on_key[:, :, :stop] += of_key
        on_value[:, :, :stop] += of_value
    rows = (_by_token(tensor, block.tokens.shape[1]) for tensor in (torch.cat(on_query, 2), on_key, on_value))
    return tuple(tensor.flatten(0, 1) for tensor in rows)  # type: ignore[return-value]
