"""Keys and values while sampling: each prompt's once, shared by its group; each completion's own after it.

Live completions are always rows 0 .. n-1 and live prompts slots 0 .. m-1, so the products read views of the cache and
never copy it. When one leaves, the last one moves into its place.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from groupwise.models.packed import PackedLayout


@dataclass(slots=True)
class KvCache:
    """Storage for every layer; layers are added when they first write."""

    num_rows: int
    """Most live completions."""
    num_prompts: int
    """Most live prompts."""
    max_prompt: int
    """Most tokens of a prompt."""
    max_completion: int
    """Most tokens of a completion."""
    prompt_layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Per layer keys and values (num_prompts, Hkv, max_prompt, D)."""
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Per layer keys and values (num_rows, Hkv, max_completion, D)."""

    def ensure_layer(self, layer: int, like: Tensor) -> None:
        """Allocate a layer's storage; `like` is (N, Hkv, D)."""
        if layer < len(self.layers):
            return
        _, heads, width = like.shape
        for store, rows, length in (
            (self.prompt_layers, self.num_prompts, self.max_prompt),
            (self.layers, self.num_rows, self.max_completion),
        ):
            store.append((like.new_zeros(rows, heads, length, width), like.new_zeros(rows, heads, length, width)))

    def move_row(self, source: int, target: int, length: int) -> None:
        """Copy a completion's first `length` tokens to another row."""
        for keys, values in self.layers:
            keys[target, :, :length] = keys[source, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def move_prompt(self, source: int, target: int) -> None:
        """Copy a prompt to another slot."""
        for keys, values in self.prompt_layers:
            keys[target] = keys[source]
            values[target] = values[source]


@dataclass(frozen=True, slots=True)
class PrefillLayout:
    """All tokens of several prompts packed in one row; keys and values are kept in the prompts' slots."""

    packed: PackedLayout
    cache: KvCache
    slots: Tensor
    """(N,) slot of each token's prompt."""
    positions: Tensor
    """(N,) position of each token in its prompt."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.cache.ensure_layer(layer, value)
        keys, values = self.cache.prompt_layers[layer]
        keys[self.slots, :, self.positions] = key.to(keys.dtype)
        values[self.slots, :, self.positions] = value
        return self.packed.attend(layer, query, key, value, scale)


@dataclass(frozen=True, slots=True)
class DecodeLayout:
    """One token for each of n live completions."""

    cache: KvCache
    rows: Tensor
    """(n,) 0 .. n-1"""
    lengths: Tensor
    """(n,) tokens in each completion's cache before this one."""
    longest: int
    """Tokens in the longest completion's cache, this one included."""
    suffix_bias: Tensor | None
    """(n, 1, 1, longest) -inf beyond each completion's end; None when all are equally long."""
    members: Tensor
    """(m, g) rows of each live prompt, padded with row 0."""
    places: Tensor
    """(n,) place of each row in the flattened `members`."""
    prompt_length: int
    """Tokens of the longest live prompt."""
    prompt_bias: Tensor | None
    """(m, 1, 1, prompt_length) -inf beyond each prompt's end; None when all are equally long."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self.cache.layers[layer]
        keys[self.rows, :, self.lengths] = key.to(keys.dtype)
        values[self.rows, :, self.lengths] = value
        query = (query * scale).to(values.dtype)
        own, own_sum = self._attend_own(query, keys, values)
        prompt, prompt_sum = self._attend_prompt(query, *self.cache.prompt_layers[layer])
        # softmax over both parts: each part's share is its exp(log-sum-exp)
        return torch.lerp(own, prompt, torch.sigmoid(prompt_sum - own_sum).to(own.dtype))

    def _attend_own(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """(n, H, D) output and (n, H, 1) log-sum-exp over each completion's own tokens."""
        n, heads, width = query.shape
        grouped = query.view(n, keys.shape[1], -1, width)
        keys, values = keys[:n, :, : self.longest], values[:n, :, : self.longest]
        out, log_sum = _attend(grouped, keys, values, self.suffix_bias)
        return out.reshape(n, heads, width), log_sum.reshape(n, heads, 1)

    def _attend_prompt(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The same over the prompts' tokens; all rows of a prompt meet its keys in one product."""
        _, heads, width = query.shape
        m, g = self.members.shape
        kv_heads = keys.shape[1]
        gathered = query.flatten(1).index_select(0, self.members.flatten()).view(m, g, kv_heads, -1, width)
        grouped = gathered.transpose(1, 2).reshape(m, kv_heads, -1, width)
        keys, values = keys[:m, :, : self.prompt_length], values[:m, :, : self.prompt_length]
        out, log_sum = _attend(grouped, keys, values, self.prompt_bias)
        return self._rows(out, heads), self._rows(log_sum, heads)

    def _rows(self, grouped: Tensor, heads: int) -> Tensor:
        """(m, Hkv, g*rep, X) -> (n, H, X)."""
        m, kv_heads, _, width = grouped.shape
        by_member = grouped.view(m, kv_heads, self.members.shape[1], -1, width).transpose(1, 2)
        return by_member.reshape(-1, heads * width).index_select(0, self.places).view(-1, heads, width)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """(b, h, q, D) queries over (b, h, k, D) keys -> output (b, h, q, D), log-sum-exp (b, h, q, 1) in fp32."""
    scores = (query @ keys.transpose(-1, -2)).float()
    if bias is not None:
        scores += bias
    highest = scores.amax(-1, keepdim=True)
    weights = (scores - highest).exp_()
    total = weights.sum(-1, keepdim=True)
    return (weights.to(values.dtype) @ values) / total.to(values.dtype), highest + total.log()
