"""One decode step, from numpy arrays to hidden states, at the exact sizes or padded to larger ones.

A padded row is another completion of the prompt in slot 0 that writes to a free row of the cache and whose result is
dropped; a padded prompt is one that no row belongs to. So a step computes the same whatever its shape.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.models.policy import Policy
from groupwise.rollout.kv_cache import DecodeLayout, KvCache, Shape


@dataclass(frozen=True, slots=True)
class Step:
    """What a step reads beside weights and cache; arrays are (n,), one entry per live completion."""

    tokens: NDArray[np.int64]
    """Last token of each completion, whose successor is wanted."""
    lengths: NDArray[np.int64]
    """Tokens in each completion's cache before that one."""
    slots: NDArray[np.int64]
    """Slot of each completion's prompt."""
    prompt_lengths: NDArray[np.int64]
    """Tokens of each completion's prompt."""

    @property
    def shape(self) -> Shape:
        """The exact sizes: nothing is padded but shorter prompts and completions."""
        counts = np.bincount(self.slots)
        longest, longest_prompt = self.lengths.max() + 1, self.prompt_lengths.max()
        return Shape(len(self.tokens), len(counts), int(counts.max()), int(longest_prompt), int(longest))

    def fills(self, shape: Shape) -> bool:
        """Whether every prompt and every completion is as long as the shape."""
        ends = ((self.lengths + 1, shape.suffix), (self.prompt_lengths, shape.prompt))
        return len(self.tokens) == shape.rows and all((length == longest).all() for length, longest in ends)

    def packed(self, shape: Shape) -> NDArray[np.int64]:
        """(4 * rows + slots * members,) all that the device needs, in one array: one transfer."""
        packed = np.zeros(4 * shape.rows + shape.slots * shape.members, np.int64)
        members, places = self._members(shape)
        by_row = packed[: 4 * shape.rows].reshape(4, shape.rows)
        by_row[:, : len(self.tokens)] = self.tokens, self.lengths, self.prompt_lengths, places
        by_row[2, len(self.tokens) :] = 1  # a prompt of one token: there is something to attend to
        packed[4 * shape.rows :] = members.ravel()
        return packed

    def _members(self, shape: Shape) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of each slot (slots, members), padded with row 0, and each row's place in that table."""
        order = np.argsort(self.slots, kind="stable")
        counts = np.bincount(self.slots)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        members = np.zeros((shape.slots, shape.members), np.int64)
        members[self.slots, rank] = np.arange(len(order))
        return members, self.slots * shape.members + rank


class Decoder(Protocol):
    """Runs decode steps on a cache."""

    @property
    def cache(self) -> KvCache: ...

    def hidden(self, policy: Policy, step: Step) -> Tensor:
        """(n, d) final hidden states of the step's tokens."""
        ...


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Every step at its exact sizes."""

    cache: KvCache

    def hidden(self, policy: Policy, step: Step) -> Tensor:
        shape = step.shape
        packed = torch.from_numpy(step.packed(shape)).to(policy.device)
        return policy.hidden(*model_inputs(self.cache, packed, shape, masked=not step.fills(shape)))


def model_inputs(cache: KvCache, packed: Tensor, shape: Shape, masked: bool) -> tuple[Tensor, Tensor, DecodeLayout]:
    """Token ids (1, n), position ids (1, n) and layout of a packed step, computed on its device."""
    tokens, lengths, prompt_lengths, places = packed[: 4 * shape.rows].view(4, -1)
    kv_heads = cache.num_kv_heads
    head = torch.arange(kv_heads, device=packed.device)
    members = packed[4 * shape.rows :].view(shape.slots, 1, shape.members) * kv_heads + head[:, None]
    slot, member = places // shape.members, places % shape.members
    layout = DecodeLayout(
        cache=cache,
        shape=shape,
        rows=torch.arange(shape.rows, device=packed.device),
        lengths=lengths,
        members=members.flatten(),
        places=((slot[:, None] * kv_heads + head) * shape.members + member[:, None]).flatten(),
        mask=_mask(lengths, prompt_lengths, shape) if masked else None,
    )
    return tokens[None], (prompt_lengths + lengths)[None], layout


def _mask(lengths: Tensor, prompt_lengths: Tensor, shape: Shape) -> Tensor:
    """(n, 1, 1, P + T) of 0 and -inf."""
    prompt = torch.arange(shape.prompt, device=lengths.device) >= prompt_lengths[:, None]
    own = torch.arange(shape.suffix, device=lengths.device) > lengths[:, None]
    beyond = torch.cat((prompt, own), 1)
    return torch.zeros(beyond.shape, device=lengths.device).masked_fill_(beyond, -torch.inf)[:, None, None]
