"""Keys and values while sampling: each prompt's once, shared by its group; each completion's own after it.

Live completions are always rows 0 .. n-1 and live prompts slots 0 .. m-1, so the products read views of the cache and
never copy it. When some leave, the last ones move into their places.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.models.packed import PackedLayout


class Shape(NamedTuple):
    """Sizes of a decode step, or the largest that a cache has room for."""

    rows: int
    """Completions."""
    slots: int
    """Prompts."""
    members: int
    """Completions of the prompt that has most of them."""
    prompt: int
    """Tokens of the longest prompt."""
    suffix: int
    """Tokens of the longest completion."""


@dataclass(slots=True)
class KvCache:
    """Storage for every layer; layers are added when they first write and stay where they are."""

    room: Shape
    prompt_layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Per layer keys and values (slots, Hkv, prompt, D)."""
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Per layer keys and values (rows, Hkv, suffix, D)."""

    @property
    def num_kv_heads(self) -> int:
        return self.layers[0][0].shape[1]

    def ensure_layer(self, layer: int, like: Tensor) -> None:
        """Allocate a layer's storage; `like` is (N, Hkv, D)."""
        if layer < len(self.layers):
            return
        _, heads, width = like.shape
        for store, rows, length in (
            (self.prompt_layers, self.room.slots, self.room.prompt),
            (self.layers, self.room.rows, self.room.suffix),
        ):
            store.append((like.new_zeros(rows, heads, length, width), like.new_zeros(rows, heads, length, width)))

    def move_rows(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens of some completions to other rows."""
        for stored in (tensor[:, :, :length] for pair in self.layers for tensor in pair):
            stored.index_copy_(0, targets, stored.index_select(0, sources))

    def move_prompts(self, sources: Tensor, targets: Tensor) -> None:
        """Copy some prompts to other slots."""
        for stored in (tensor for pair in self.prompt_layers for tensor in pair):
            stored.index_copy_(0, targets, stored.index_select(0, sources))


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
    """One token for each of n live completions of m live prompts."""

    cache: KvCache
    shape: Shape
    """Of this step; `members` is g, `prompt` is P and `suffix`, this token included, is T."""
    rows: Tensor
    """(n,) 0 .. n-1"""
    lengths: Tensor
    """(n,) tokens in each completion's cache before this one."""
    members: Tensor
    """(m * Hkv * g,) for each prompt, key head and member the row * Hkv + key head; padded with row 0."""
    places: Tensor
    """(n * Hkv,) for each row and key head its place in `members`."""
    mask: Tensor | None
    """(n, 1, 1, P + T) -inf beyond the ends of each row's prompt and completion; None when none is padded."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        keys, values = self.cache.layers[layer]
        keys[self.rows, :, self.lengths] = key.to(keys.dtype)
        values[self.rows, :, self.lengths] = value
        keys, values = (tensor[: self.shape.rows, :, : self.shape.suffix] for tensor in (keys, values))
        prompt = (tensor[: self.shape.slots, :, : self.shape.prompt] for tensor in self.cache.prompt_layers[layer])
        prompt_keys, prompt_values = prompt
        grouped = (query * scale).to(values.dtype).reshape(len(query), keys.shape[1], -1, query.shape[2])
        on_prompt = self._by_row(self._by_prompt(grouped) @ prompt_keys.transpose(-1, -2))
        scores = torch.cat((on_prompt, grouped @ keys.transpose(-1, -2)), -1)
        scores = scores if self.mask is None else scores + self.mask
        weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
        on_prompt, on_own = weights.split((self.shape.prompt, self.shape.suffix), -1)
        out: Tensor = self._by_row(self._by_prompt(on_prompt) @ prompt_values) + on_own @ values
        return out.view_as(query)

    def _by_prompt(self, by_row: Tensor) -> Tensor:
        """(n, Hkv, rep, X) -> (m, Hkv, g * rep, X): all rows of a prompt meet its keys in one product."""
        _, kv_heads, _, width = by_row.shape
        gathered = by_row.reshape(-1, by_row.shape[2] * width).index_select(0, self.members)
        return gathered.view(self.shape.slots, kv_heads, -1, width)

    def _by_row(self, by_prompt: Tensor) -> Tensor:
        """(m, Hkv, g * rep, X) -> (n, Hkv, rep, X)."""
        slots, kv_heads, _, width = by_prompt.shape
        gathered = by_prompt.view(slots * kv_heads * self.shape.members, -1).index_select(0, self.places)
        return gathered.view(self.shape.rows, kv_heads, -1, width)
