"""Decoding one token for every live completion: keys and values, and the step from numpy arrays to hidden states.

A prompt's keys and values are shared by its group. Live completions are always rows 0 .. n-1 and live prompts slots
0 .. m-1, so products read views of the cache; when some leave, the last ones move into their places. A padded row is
another completion of slot 0 whose result is dropped, so a step computes the same whatever its shape.

A layer with a window keeps and reads the window's keys and values alone: token t of a prompt or completion lies in
column t mod W, where it takes the place of token t - W, which no later token of a completion sees.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.models.attention import Layout, Scoring, soft_capped
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.models.recurrent import States


class Shape(NamedTuple):
    """Sizes of a decode step, or the largest that a cache has room for."""

    rows: int
    slots: int
    members: int
    prompt: int
    suffix: int


FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
"""Attention and the log-sum-exp of its scores: of few queries it reads keys in bf16 at twice the rate of products."""
LONG = 256
"""Tokens of a completion from which on its keys lie with their tokens side by side; with its prompt's, for FLASH."""
NARROW = 64
"""Width of a head below which they do: a processor's products with wider ones are as fast either way."""


@dataclass(slots=True)
class KvCache:
    """Storage for every layer; layers are added when they first write and stay where they are.

    On a processor the fp32 keys of long completions lie as (rows, Hkv, D, suffix), which is faster for narrow heads.
    Behind a window, prompt and suffix are at most its size.
    """

    room: Shape
    prompt_layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Per layer keys and values (slots, Hkv, prompt, D)."""
    layers: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Per layer keys and values (rows, Hkv, suffix, D)."""
    windows: dict[int, int | None] = field(default_factory=dict)  # By layer
    states: States | None = None  # Of the layers that carry one; these have no keys and values

    def ensure_layer(self, layer: int, key: Tensor, value: Tensor, window: int | None) -> None:
        if layer not in self.layers:
            prompt, suffix = (min(length, window or length) for length in (self.room.prompt, self.room.suffix))
            like = key.to(value.dtype), value
            self.prompt_layers[layer] = _empty(like, self.room.slots, prompt, turned=False)
            self.layers[layer] = _empty(like, self.room.rows, suffix, turned=suffix >= LONG)
            self.windows[layer] = window

    def grow(self, suffix: int) -> None:
        """Make room for completions of so many tokens."""
        if suffix <= self.room.suffix:
            return
        self.room = self.room._replace(suffix=max(suffix, 2 * self.room.suffix))
        for layer, before in self.layers.items():
            length = min(self.room.suffix, self.windows[layer] or self.room.suffix)
            like = before[0][:, :, 0], before[1][:, :, 0]
            self.layers[layer] = _empty(like, self.room.rows, length, length >= LONG)
            for old, new in zip(before, self.layers[layer], strict=True):
                new[:, :, : old.shape[2]] = old

    def move_rows(self, sources: Tensor, targets: Tensor, length: int) -> None:
        for stored in (tensor[:, :, :length] for pair in self.layers.values() for tensor in pair):
            stored.index_copy_(0, targets, stored.index_select(0, sources))
        if self.states:
            self.states.move_rows(sources, targets)

    def move_prompts(self, sources: Tensor, targets: Tensor) -> None:
        for stored in (tensor for pair in self.prompt_layers.values() for tensor in pair):
            stored.index_copy_(0, targets, stored.index_select(0, sources))
        if self.states:
            self.states.move_prompts(sources, targets)


def _empty(like: tuple[Tensor, Tensor], rows: int, length: int, turned: bool) -> tuple[Tensor, Tensor]:
    """Return room for the keys and values of a layer, of which `like` (n, Hkv, D) are some."""
    (_, heads, width), keys = like[0].shape, like[0]
    values = like[1].new_zeros(rows, heads, length, like[1].shape[2])
    if turned and keys.device.type == "cpu" and keys.dtype is torch.float32 and width < NARROW:
        return keys.new_zeros(rows, heads, width, length).transpose(-1, -2), values
    return keys.new_zeros(rows, heads, length, width), values


@dataclass(frozen=True, slots=True)
class PrefillLayout:
    """All tokens of several prompts packed in one row; keys and values are kept in the prompts' slots."""

    packed: Layout
    cache: KvCache
    slots: Tensor
    positions: Tensor
    ends: Tensor  # (N,) length of each token's prompt

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        self.cache.ensure_layer(layer, key, value, scoring.window)
        keys, values = self.cache.prompt_layers[layer]
        kept: Tensor | slice = slice(None)
        at = self.positions
        if scoring.window:
            kept, at = self.ends - at <= scoring.window, at % scoring.window
        place = self.slots[kept], slice(None), at[kept]
        keys[place], values[place] = key[kept].to(keys.dtype), value[kept]
        return self.packed.attend(layer, query, key, value, scoring)


def prefill(policy: Policy, cache: KvCache, prompts: Sequence[Sequence[int]], slots: NDArray[np.int64]) -> Tensor:
    """Keep what completions read of some prompts in their slots, and return the (m, d) states of their last tokens.

    Layers that carry a state compute one prompt at a time.
    """
    device = policy.device

    def compute(chosen: slice, states: States | None = None) -> Tensor:
        packed = pack([Sequences(prompt, []) for prompt in prompts[chosen]], device, shares=False)
        lengths = np.array([len(prompt) for prompt in prompts[chosen]])
        slot, end = (torch.from_numpy(np.repeat(array, lengths)).to(device) for array in (slots[chosen], lengths))
        layout = PrefillLayout(packed.layout, cache, slot, packed.position_ids[0], end)
        hidden = policy.hidden(packed.input_ids, packed.position_ids, layout, states_of_layers=states)
        return hidden[torch.from_numpy(np.cumsum(lengths) - 1).to(device)]

    if cache.states is None:
        return compute(slice(None))
    last = []
    for place, slot in enumerate(slots.tolist()):
        with cache.states.of_prompt(slot) as states:
            last.append(compute(slice(place, place + 1), states))
    return torch.cat(last)


def weighed(scores: Tensor, mask: Tensor | None, scoring: Scoring) -> Tensor:
    """Return the fp32 weights of scores (n, Hkv, rep, K); those of a layer with sinks have a column more."""
    if scoring.cap:
        scores = soft_capped(scores.float(), scoring.cap)
    scores = scores if mask is None else scores + mask
    if scoring.sinks is not None:
        sinks = scoring.sinks.to(scores.dtype).view(1, scores.shape[1], -1, 1)
        sinks = sinks.repeat_interleave(scores.shape[2] // sinks.shape[2], 2)
        scores = torch.cat((scores, sinks.expand(len(scores), -1, -1, 1)), -1)
    return scores.softmax(-1, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class DecodeLayout:
    """One token for each of n live completions of m live prompts."""

    cache: KvCache
    shape: Shape
    rows: Tensor
    lengths: Tensor
    members: Tensor
    """(m, g) rows of each prompt; padded with row 0."""
    positions: Tensor
    """(n,) position of each row in `members`."""
    mask: Tensor | None
    """(n, 1, 1, P + T) -inf beyond the ends of each row's prompt and completion; None when none is padded."""
    prompt_mask: Tensor | None
    """(m, 1, 1, P) that of each prompt alone."""
    prompt_lengths: Tensor
    windows: dict[int, Tensor] = field(default_factory=dict)  # Masks of layers with a window, by its size
    places: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # `_by_head`, by the number of key heads

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        keys, values = self.cache.layers[layer]
        at = self.lengths % scoring.window if scoring.window else self.lengths
        keys[self.rows, :, at] = key.to(keys.dtype)
        values[self.rows, :, at] = value
        keys, values = (tensor[: self.shape.rows, :, : self.shape.suffix] for tensor in (keys, values))
        prompt = [tensor[: self.shape.slots, :, : self.shape.prompt] for tensor in self.cache.prompt_layers[layer]]
        prompt_keys, prompt_values = prompt
        is_long = self.shape.prompt + self.shape.suffix >= LONG and values.device.type == "cpu"
        is_long &= keys.shape == values.shape
        if is_long and values.dtype is torch.bfloat16 and scoring == Scoring(scoring.scale):
            grouped = query.to(values.dtype).reshape(len(query), keys.shape[1], -1, query.shape[2])
            asked, own_mask = self._by_prompt(grouped), None if self.mask is None else self.mask[..., -keys.shape[2] :]
            of_prompt, log_prompt = FLASH(asked, *prompt, attn_mask=self.prompt_mask, scale=scoring.scale)
            of_own, log_own = FLASH(grouped, keys, values, attn_mask=own_mask, scale=scoring.scale)
            share = (self._by_row(log_prompt[..., None]) - log_own[..., None]).sigmoid_()
            joined: Tensor = of_own.lerp(self._by_row(of_prompt), share.to(of_own.dtype))
            return joined.view_as(query)
        grouped = (query * scoring.scale).to(values.dtype).reshape(len(query), keys.shape[1], -1, query.shape[2])
        on_prompt = self._by_row(self._by_prompt(grouped) @ prompt_keys.transpose(-1, -2))
        scores = torch.cat((on_prompt, grouped @ keys.transpose(-1, -2)), -1)
        mask = self._in_window(scoring.window) if scoring.window else self.mask
        weights = weighed(scores, mask, scoring).to(values.dtype)
        ends = prompt_keys.shape[2], prompt_keys.shape[2] + keys.shape[2]
        on_prompt, on_own, *_ = weights.tensor_split(ends, -1)
        out: Tensor = self._by_row(self._by_prompt(on_prompt) @ prompt_values) + on_own @ values
        return out.flatten(1, 2)

    def _in_window(self, window: int) -> Tensor | None:
        """The mask of a layer whose tokens see no more than `window` positions; every column of it is a token's."""
        if window >= self.shape.prompt + self.shape.suffix:
            return self.mask
        if window not in self.windows:
            lengths, ends, device = self.lengths[:, None], self.prompt_lengths[:, None], self.lengths.device
            column = torch.arange(min(self.shape.prompt, window), device=device)
            token = column + (ends - 1 - column).div(window, rounding_mode="floor") * window  # negative: there is none
            unseen_prompt = (token < 0) | (token <= ends + lengths - window)
            unseen = lengths < torch.arange(min(self.shape.suffix, window), device=device)
            beyond = torch.cat((unseen_prompt, unseen), 1)
            mask = torch.zeros(beyond.shape, device=device).masked_fill_(beyond, -torch.inf)[:, None, None]
            self.windows[window] = mask
        return self.windows[window]

    def _by_prompt(self, by_row: Tensor) -> Tensor:
        """(n, Hkv, rep, X) -> (m, Hkv, g * rep, X): all rows of a prompt meet its keys in one product."""
        _, kv_heads, _, width = by_row.shape
        gathered = by_row.reshape(-1, by_row.shape[2] * width).index_select(0, self._by_head(kv_heads)[0])
        return gathered.view(self.shape.slots, kv_heads, -1, width)

    def _by_row(self, by_prompt: Tensor) -> Tensor:
        slots, kv_heads, _, width = by_prompt.shape
        rows = by_prompt.reshape(slots * kv_heads * self.shape.members, -1)
        return rows.index_select(0, self._by_head(kv_heads)[1]).view(self.shape.rows, kv_heads, -1, width)

    def _by_head(self, kv_heads: int) -> tuple[Tensor, Tensor]:
        """(m * Hkv * g,) row * Hkv + key head of each prompt, key head and member; (n * Hkv,) place of each there."""
        if kv_heads not in self.places:
            head, size = torch.arange(kv_heads, device=self.members.device), self.shape.members
            members = self.members[:, None] * kv_heads + head[:, None]
            slot, member = self.positions[:, None] // size, self.positions[:, None] % size
            self.places[kv_heads] = members.flatten(), ((slot * kv_heads + head) * size + member).flatten()
        return self.places[kv_heads]


@dataclass(frozen=True, slots=True)
class Step:
    """Inputs of a decode step beside weights and cache; arrays are (n,), one entry per live completion."""

    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    slots: NDArray[np.int64]
    prompt_lengths: NDArray[np.int64]

    @property
    def shape(self) -> Shape:
        counts = np.bincount(self.slots)
        longest, longest_prompt = self.lengths.max() + 1, self.prompt_lengths.max()
        return Shape(len(self.tokens), len(counts), int(counts.max()), int(longest_prompt), int(longest))

    def fills(self, shape: Shape) -> bool:
        ends = ((self.lengths + 1, shape.suffix), (self.prompt_lengths, shape.prompt))
        return len(self.tokens) == shape.rows and all((length == longest).all() for length, longest in ends)

    def packed(self, shape: Shape) -> NDArray[np.int64]:
        """(4 * rows + slots * members,) all that the device needs, in one array: one transfer.

        The rows of each slot are padded with row 0; of each row it has the place in that table, too.
        """
        packed = np.zeros(4 * shape.rows + shape.slots * shape.members, np.int64)
        order, counts = np.argsort(self.slots, kind="stable"), np.bincount(self.slots)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = self.slots * shape.members + rank
        packed[4 * shape.rows :][positions] = np.arange(len(order))
        by_row = packed[: 4 * shape.rows].reshape(4, shape.rows)
        by_row[:, : len(self.tokens)] = self.tokens, self.lengths, self.prompt_lengths, positions
        by_row[2, len(self.tokens) :] = 1  # a prompt of one token: there is something to attend to
        return packed


@dataclass(frozen=True, slots=True)
class OnwardLayout:
    """Several new tokens of each of n live completions, which see their prompt and all that stands before them."""

    cache: KvCache
    rows: slice
    slots: Tensor  # (n,) of their prompts
    prompts: Tensor  # (n,) their lengths
    lengths: Tensor  # (n,) of the completions without the new tokens
    counts: Tensor  # (n,) of the new tokens, t at most
    row: Tensor  # (N,) each token's completion
    number: Tensor  # (N,) its number among the new ones
    masks: dict[int | None, tuple[int, int, Tensor]] = field(default_factory=dict)  # By the layer's window

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        prompt, own, mask = self._mask(scoring.window)
        stored = zip(self.cache.prompt_layers[layer], self.cache.layers[layer], (key, value), strict=True)
        at = self.lengths[self.row] + self.number
        seen = list[Tensor]()
        for prompts, completions, new in stored:
            fresh = completions.new_zeros(len(self.slots), new.shape[1], mask.shape[2], new.shape[2])
            fresh[self.row, :, self.number] = new.to(completions.dtype)
            seen.append(torch.cat((prompts[self.slots, :, :prompt], completions[self.rows, :, :own], fresh), 2))
            if scoring.window:
                kept = at >= (self.lengths + self.counts)[self.row] - scoring.window
                completions[self.rows][self.row[kept], :, at[kept] % scoring.window] = new[kept].to(completions.dtype)
            else:
                completions[self.rows][self.row, :, at] = new.to(completions.dtype)
        keys, values = seen
        asked = values.new_zeros(len(keys), query.shape[1], mask.shape[2], query.shape[2])
        asked[self.row, :, self.number] = (query * scoring.scale).to(values.dtype)
        scores = asked.view(*keys.shape[:2], -1, query.shape[2]) @ keys.transpose(-1, -2)
        weights = weighed(scores, mask.repeat(1, 1, query.shape[1] // keys.shape[1], 1), scoring)
        weights = weights[..., : keys.shape[2]].to(values.dtype)
        return (weights @ values).view(*asked.shape[:3], -1)[self.row, :, self.number].to(query.dtype)

    def _mask(self, window: int | None) -> tuple[int, int, Tensor]:
        """Columns of prompts P and completions T, and (n, 1, t, P + T + t) -inf at what a new token does not see."""
        if window not in self.masks:
            number = torch.arange(int(self.counts.max()), device=self.counts.device)
            places = list[Tensor]()  # of each column's token in the sequence, negative where there is none
            for ends, before in ((self.prompts, 0 * self.prompts), (self.lengths, self.prompts)):
                size = min(int(ends.max()), window or int(ends.max()))
                column = torch.arange(size, device=ends.device)
                token = column + (ends[:, None] - 1 - column).div(max(size, 1), rounding_mode="floor") * size
                places.append(torch.where(token < 0, -1, token + before[:, None]))
            asks = (self.prompts + self.lengths)[:, None] + number
            of_all = torch.cat((*places, torch.where(number < self.counts[:, None], asks, -1)), 1)[:, None]
            is_seen = (of_all >= 0) & (of_all <= asks[..., None])
            if window:
                is_seen &= of_all > asks[..., None] - window
            mask = torch.zeros(is_seen.shape, device=is_seen.device).masked_fill_(~is_seen, -torch.inf)[:, None]
            self.masks[window] = places[0].shape[1], places[1].shape[1], mask
        return self.masks[window]


def go_on(policy: Policy, cache: KvCache, first: int, new: Sequence[Sequence[int]], before: Step) -> Tensor:
    """Keep new tokens of the completions in the rows from `first` on; return the (n, d) states of their last ones.

    The step has the completions without them; its tokens are not read.
    """
    counts = np.array([len(ids) for ids in new])
    row, number = np.repeat(np.arange(len(new)), counts), np.concatenate([np.arange(count) for count in counts])
    ids, positions = np.array([i for row in new for i in row]), (before.prompt_lengths + before.lengths)[row] + number
    arrays = (before.slots, before.prompt_lengths, before.lengths, counts, row, number, ids, positions)
    slots, prompts, lengths, count, of_row, of_number, token, position = (
        torch.from_numpy(array).to(policy.device) for array in arrays
    )
    layout = OnwardLayout(cache, slice(first, first + len(new)), slots, prompts, lengths, count, of_row, of_number)
    return policy.hidden(token[None], position[None], layout)[torch.cumsum(layout.counts, 0) - 1]


class Decoder(Protocol):
    """Runs decode steps on a cache."""

    @property
    def cache(self) -> KvCache: ...

    @property
    def rounded(self) -> AbstractContextManager[None]:
        """The context in which its steps, and what belongs to them, compute."""
        ...

    def hidden(self, policy: Policy, step: Step) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Every step at its exact sizes."""

    cache: KvCache
    rounded: AbstractContextManager[None] = field(default_factory=nullcontext)

    def hidden(self, policy: Policy, step: Step) -> Tensor:
        shape = step.shape
        packed = torch.from_numpy(step.packed(shape)).to(policy.device)
        ids, position_ids, layout = model_inputs(self.cache, packed, shape, masked=not step.fills(shape))
        if self.cache.states is None:
            return policy.hidden(ids, position_ids, layout)
        states = self.cache.states.of_rows(step.lengths, step.slots)
        return policy.hidden(ids.T, position_ids.T, layout, states_of_layers=states)


def model_inputs(cache: KvCache, packed: Tensor, shape: Shape, masked: bool) -> tuple[Tensor, Tensor, DecodeLayout]:
    """Token ids (1, n), position ids (1, n) and layout of a packed step, computed on its device."""
    tokens, lengths, prompt_lengths, positions = packed[: 4 * shape.rows].view(4, -1)
    members = packed[4 * shape.rows :].view(shape.slots, shape.members)
    mask = None
    if masked:
        prompt = torch.arange(shape.prompt, device=packed.device) >= prompt_lengths[:, None]
        suffix = torch.arange(shape.suffix, device=packed.device) > lengths[:, None]
        beyond = torch.cat((prompt, suffix), 1)
        mask = torch.zeros(beyond.shape, device=packed.device).masked_fill_(beyond, -torch.inf)[:, None, None]
    layout = DecodeLayout(
        cache=cache,
        shape=shape,
        rows=torch.arange(shape.rows, device=packed.device),
        lengths=lengths,
        members=members,
        positions=positions,
        mask=mask,
        prompt_mask=None if mask is None else mask[members[:, 0], ..., : shape.prompt],
        prompt_lengths=prompt_lengths,
    )
    return tokens[None], (prompt_lengths + lengths)[None], layout
