"""The one attention function of the package, for training, prefill and decode.

transformers models dispatch attention by name; ours is registered as "groupwise" and does what the `layout` object in
the model call's keyword arguments says. Inputs are packed: one row `[1, H, N, D]` holds all N tokens of all
sequences, so every linear layer of the model works on real tokens only. `attend_blocks` gathers tokens into blocks,
the only place where padding exists.

Sliding windows, soft-capped scores, attention sinks and dropout are refused by name rather than computed wrongly.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from groupwise.errors import UnsupportedModelError

NAME = "groupwise"


class Layout(Protocol):
    """Says which tokens of a packed row attend to which, and does it."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """(N, H, D) queries, (N, Hkv, D) keys and values of one layer -> (N, H, D)."""
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
    """Entry point for transformers: (1, H, N, D) queries in, (1, N, H, D) out."""
    refuse_unsupported(module, dropout, options)
    if layout is None or attention_mask is not None:
        raise UnsupportedModelError("the groupwise attention needs a layout and takes no attention mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return layout.attend(layer, query, key, value, scale)[None], None


def refuse_unsupported(module: torch.nn.Module, dropout: float, options: dict[str, Any]) -> None:
    """Name what we would get wrong; `None` and 0 mean that the feature is off."""
    names = {"sliding_window": "sliding-window attention", "softcap": "soft-capped attention scores", "s_aux": "sinks"}
    for option, name in names.items():
        if options.get(option) is not None:
            raise UnsupportedModelError(
                f"{type(module).__name__} uses {name} ({option}={options[option]}): not supported"
            )
    if dropout:
        raise UnsupportedModelError(f"{type(module).__name__} uses attention dropout {dropout}: set it to 0 to train")


AttentionInterface.register(NAME, groupwise_attention)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Sequences that are computed in one product, as indices into the packed row.

    S sets of G sequences of at most R tokens, each sequence causal within itself; the G sequences of a set share a
    prefix of at most P tokens that all of them see entirely. A prompt alone is a set with G = 1 and no prefix.
    Indices of padding point at token 0; what is computed for them is never read.
    """

    tokens: Tensor
    """(S, G, R) packed index of each token."""
    prefix: Tensor | None
    """(S, P) packed index of each prefix token."""
    prefix_lengths: Tensor | None
    """(S,) real length of each prefix; None when none is padded."""
    padding: Tensor | None
    """(S, 1, G, 1, R, 1) True where `tokens` is padding; None when nothing is padded."""

    def gather(self, packed: Tensor, indices: Tensor) -> Tensor:
        """(N, H, D) -> (S, *indices.shape[1:], H, D)."""
        return packed.flatten(1).index_select(0, indices.flatten()).view(*indices.shape, *packed.shape[1:])

    def queries(self, packed: Tensor, num_kv_heads: int) -> Tensor:
        """(N, H, D) -> (S, Hkv, G, rep, R, D): queries that share a key head stand together."""
        blocks = self.gather(packed, self.tokens)
        queries: Tensor = blocks.unflatten(3, (num_kv_heads, -1)).permute(0, 3, 1, 4, 2, 5).contiguous()
        return queries

    def ungather_queries(self, blocks: Tensor) -> Tensor:
        """(S, Hkv, G, rep, R, D) -> (S*G*R, H*D), rows in the order of `tokens`."""
        return blocks.permute(0, 2, 4, 1, 3, 5).reshape(self.tokens.numel(), -1)

    def gradients(self, packed: Tensor, num_kv_heads: int) -> Tensor:
        """Like `queries`, with zeros at padding: what no token reads has no gradient."""
        blocks = self.queries(packed, num_kv_heads)
        return blocks if self.padding is None else blocks.masked_fill_(self.padding, 0)

    def own_keys(self, packed: Tensor) -> Tensor:
        """(N, Hkv, D) -> (S, Hkv, G, R, D)."""
        return self.gather(packed, self.tokens).permute(0, 3, 1, 2, 4).contiguous()

    def prefix_keys(self, packed: Tensor) -> Tensor:
        """(N, Hkv, D) -> (S, Hkv, P, D)."""
        assert self.prefix is not None
        return self.gather(packed, self.prefix).transpose(1, 2).contiguous()

    def own_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Causal scores (S, Hkv, G, rep, R, R) in fp32; -inf above the diagonal."""
        *_, rep, length, _ = query.shape
        scores: Tensor = (query.flatten(3, 4) @ key.transpose(-1, -2)).float().unflatten(3, (rep, length))
        above = torch.ones(length, length, dtype=torch.bool, device=query.device).triu_(1)
        return scores.masked_fill_(above, -torch.inf)

    def prefix_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores (S, Hkv, G, rep, R, P) in fp32: all queries of a group meet the prompt's keys in one product."""
        scores: Tensor = (query.flatten(2, 4) @ key.transpose(-1, -2)).float()
        if self.prefix_lengths is not None:
            beyond = torch.arange(key.shape[2], device=key.device) >= self.prefix_lengths[:, None, None, None]
            scores.masked_fill_(beyond, -torch.inf)
        return scores.view(*scores.shape[:2], *query.shape[2:5], -1)


class _PackedAttention(torch.autograd.Function):
    """softmax(Q Kᵀ) V over blocks; the backward recomputes the probabilities from the saved log-sum-exp.

    Memory is linear in the number of tokens: scores exist for one Blocks at a time. The backward is that of
    FlashAttention (Dao 2022, arXiv:2205.14135, algorithm 4): dS = P ∘ (dO Vᵀ - rowsum(dO ∘ O)).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: tuple[Blocks, ...], inverse: Tensor
    ) -> Tensor:
        outputs, log_sums = zip(*(_block_forward(query, key, value, block) for block in blocks), strict=True)
        rows = torch.cat([block.ungather_queries(out) for block, out in zip(blocks, outputs, strict=True)])
        out = rows.index_select(0, inverse).view_as(query)
        ctx.save_for_backward(query, key, value, out, inverse, *log_sums)
        ctx.blocks = blocks
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        query, key, value, out, inverse, *log_sums = ctx.saved_tensors
        grad = grads[0].contiguous()
        delta = (grad.float() * out.float()).sum(-1, keepdim=True).to(grad.dtype)
        own: list[list[Tensor]] = [[], [], []]
        prefix: list[tuple[Tensor, Tensor, Tensor]] = []
        for block, log_sum in zip(ctx.blocks, log_sums, strict=True):
            rows, on_prefix = _block_backward(query, key, value, grad, delta, block, log_sum)
            for store, row in zip(own, rows, strict=True):
                store.append(row)
            prefix += on_prefix
        grad_query, grad_key, grad_value = (
            torch.cat(rows).index_select(0, inverse).view_as(like)
            for rows, like in zip(own, (query, key, value), strict=True)
        )
        for index, on_key, on_value in prefix:
            grad_key.index_put_((index,), on_key, accumulate=True)
            grad_value.index_put_((index,), on_value, accumulate=True)
        return grad_query, grad_key, grad_value, None, None


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, blocks: tuple[Blocks, ...], inverse: Tensor, scale: float
) -> Tensor:
    """Differentiable attention of a packed row: (N, H, D), (N, Hkv, D), (N, Hkv, D) -> (N, H, D).

    `inverse` (N,) finds each token's row in the concatenated, padded rows of all blocks.
    """
    # under autocast normalised queries and keys come in fp32 beside values in bf16; the products take the values' dtype
    query, key = (query * scale).to(value.dtype), key.to(value.dtype)
    out: Tensor = _PackedAttention.apply(query, key, value, blocks, inverse)  # type: ignore[no-untyped-call]
    return out


def _block_forward(query: Tensor, key: Tensor, value: Tensor, block: Blocks) -> tuple[Tensor, Tensor]:
    """Output (S, Hkv, G, rep, R, D) and log-sum-exp (S, Hkv, G, rep, R, 1)."""
    q = block.queries(query, key.shape[1])
    own = block.own_scores(q, block.own_keys(key))
    highest = own.amax(-1, keepdim=True)
    before = None
    if block.prefix is not None:
        before = block.prefix_scores(q, block.prefix_keys(key))
        highest = torch.maximum(highest, before.amax(-1, keepdim=True))
    weights = own.sub_(highest).exp_()
    total = weights.sum(-1, keepdim=True)
    out = (weights.to(q.dtype).flatten(3, 4) @ block.own_keys(value)).view_as(q)
    if before is not None:
        weights = before.sub_(highest).exp_()
        total += weights.sum(-1, keepdim=True)
        out += (weights.to(q.dtype).flatten(2, 4) @ block.prefix_keys(value)).view_as(q)
    return out.div_(total.to(q.dtype)), highest + total.log_()


def _block_backward(
    query: Tensor, key: Tensor, value: Tensor, grad: Tensor, delta: Tensor, block: Blocks, log_sum: Tensor
) -> tuple[tuple[Tensor, Tensor, Tensor], list[tuple[Tensor, Tensor, Tensor]]]:
    """Gradient rows for the block's own tokens (queries, keys, values) and (index, keys, values) for its prefixes."""
    heads = key.shape[1]
    q, g, d = block.queries(query, heads), block.gradients(grad, heads), block.gradients(delta, heads)
    k, v = block.own_keys(key), block.own_keys(value)
    p = block.own_scores(q, k).sub_(log_sum).exp_().to(q.dtype).flatten(3, 4)
    q_rows, g_rows, d_rows = q.flatten(3, 4), g.flatten(3, 4), d.flatten(3, 4)
    on_scores = (g_rows @ v.transpose(-1, -2)).sub_(d_rows).mul_(p)
    on_query = (on_scores @ k).view_as(q)
    on_key = on_scores.transpose(-1, -2) @ q_rows
    on_value = p.transpose(-1, -2) @ g_rows
    on_prefix = []
    if block.prefix is not None:
        k, v = block.prefix_keys(key), block.prefix_keys(value)
        p = block.prefix_scores(q, k).sub_(log_sum).exp_().to(q.dtype).flatten(2, 4)
        q_rows, g_rows, d_rows = q.flatten(2, 4), g.flatten(2, 4), d.flatten(2, 4)
        on_scores = (g_rows @ v.transpose(-1, -2)).sub_(d_rows).mul_(p)
        on_query += (on_scores @ k).view_as(q)
        on_prefix = [_prefix_rows(block, on_scores.transpose(-1, -2) @ q_rows, p.transpose(-1, -2) @ g_rows)]
    own_rows = (on_key.permute(0, 2, 3, 1, 4), on_value.permute(0, 2, 3, 1, 4))
    flat_key, flat_value = (rows.reshape(block.tokens.numel(), -1) for rows in own_rows)
    return (block.ungather_queries(on_query), flat_key, flat_value), on_prefix


def _prefix_rows(block: Blocks, on_key: Tensor, on_value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flatten prefix gradients (S, Hkv, P, D) to (S*P, Hkv, D); padded positions carry exact zeros."""
    assert block.prefix is not None
    rows = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (on_key, on_value))
    return (block.prefix.flatten(), *rows)  # type: ignore[return-value]
