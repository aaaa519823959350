"""Packing: all tokens of a micro-batch in one row, every prompt once, its completions after it, no padding.

A `Sequences` is one prompt with the completions that continue it. `pack` lays them out, says which tokens attend to
which (as `Blocks` for the attention), and at which positions the head is applied: the last prompt token predicts the
first token of every completion; the last token of a completion is predicted but never read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.models.attention import Blocks, packed_attention

MAX_SCORES = 1 << 20
"""Attention scores per head that one Blocks may hold; bounds memory, keeps the working set near the cache."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """One prompt and its completions, as token ids."""

    prompt: Sequence[int] | NDArray[np.int64]
    completions: Sequence[Sequence[int] | NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """The layout of a packed row for training and prefill."""

    blocks: tuple[Blocks, ...]
    inverse: Tensor
    """(N,) row of each token in the concatenated rows of all blocks."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        return packed_attention(query, key, value, self.blocks, self.inverse, scale)


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed row, ready for the model."""

    input_ids: Tensor
    """(1, N)"""
    position_ids: Tensor
    """(1, N) position of each token in its own sequence."""
    layout: PackedLayout
    head_positions: Tensor
    """(M,) packed index of the token that predicts each completion token, in the order the sequences were given."""
    targets: Tensor
    """(M,) the completion tokens."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Tokens start .. start+length-1 of the packed row, which form one causal sequence."""

    start: int
    length: int


def pack(sequences: Sequence[Sequences], device: torch.device | str = "cpu") -> Pack:
    """Lay sequences out in one row. Every prompt and every completion needs at least one token."""
    ids: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    heads: list[NDArray[np.int64]] = []
    whole: list[_Run] = []
    groups: list[tuple[_Run, tuple[_Run, ...]]] = []
    at = 0
    for sequence in sequences:
        prompt = np.asarray(sequence.prompt, np.int64)
        completions = [np.asarray(completion, np.int64) for completion in sequence.completions]
        if not len(prompt) or not all(len(completion) for completion in completions):
            raise ValueError("an empty prompt or completion cannot be packed")
        prefix, at = _Run(at, len(prompt)), at + len(prompt)
        ids.append(prompt)
        positions.append(np.arange(len(prompt)))
        runs = []
        for completion in completions:
            read = completion[:-1]
            ids.append(read)
            positions.append(np.arange(len(prompt), len(prompt) + len(read)))
            heads.append(np.concatenate(([prefix.start + prefix.length - 1], np.arange(at, at + len(read)))))
            runs.append(_Run(at, len(read)))
            at += len(read)
        if len(completions) == 1:  # prompt and completion are neighbours: one causal sequence, no prefix needed
            whole.append(_Run(prefix.start, prefix.length + runs[0].length))
        else:
            whole.append(prefix)
            groups.append((prefix, tuple(run for run in runs if run.length)))
    blocks = [_whole_block(chunk) for chunk in _chunks_of_runs(whole)]
    blocks += [_group_block(chunk) for chunk in _chunks_of_groups([group for group in groups if group[1]])]
    targets = [np.asarray(completion, np.int64) for sequence in sequences for completion in sequence.completions]

    def tensor(array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Pack(
        input_ids=tensor(np.concatenate(ids))[None],
        position_ids=tensor(np.concatenate(positions))[None],
        layout=PackedLayout(tuple(block.on(tensor) for block in blocks), tensor(_inverse(blocks, at))),
        head_positions=tensor(np.concatenate(heads) if heads else np.zeros(0, np.int64)),
        targets=tensor(np.concatenate(targets) if targets else np.zeros(0, np.int64)),
    )


@dataclass(frozen=True, slots=True)
class _Block:
    """Blocks in numpy, before it goes to a device."""

    tokens: NDArray[np.int64]
    padded: NDArray[np.bool_]
    prefix: NDArray[np.int64] | None = None
    prefix_lengths: NDArray[np.int64] | None = None

    def on(self, tensor: Any) -> Blocks:
        uneven = self.prefix_lengths is not None and len(set(self.prefix_lengths.tolist())) > 1
        return Blocks(
            tokens=tensor(self.tokens),
            prefix=None if self.prefix is None else tensor(self.prefix),
            prefix_lengths=tensor(self.prefix_lengths) if uneven else None,
            padding=tensor(self.padded[:, None, :, None, :, None]) if self.padded.any() else None,
        )


def _indices(runs: Sequence[_Run]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Token indices (num_runs, longest) and where they are padding; padding points at token 0."""
    starts = np.array([run.start for run in runs])[:, None]
    lengths = np.array([run.length for run in runs])[:, None]
    offsets = np.arange(lengths.max())[None]
    padded = offsets >= lengths
    return np.where(padded, 0, starts + offsets), padded


def _whole_block(runs: Sequence[_Run]) -> _Block:
    tokens, padded = _indices(runs)
    return _Block(tokens[:, None], padded[:, None])


def _group_block(groups: Sequence[tuple[_Run, tuple[_Run, ...]]]) -> _Block:
    prefix, _ = _indices([group[0] for group in groups])
    tokens, padded = _indices([run for _, runs in groups for run in runs])
    shape = (len(groups), len(groups[0][1]), -1)
    lengths = np.array([group[0].length for group in groups])
    return _Block(tokens.reshape(shape), padded.reshape(shape), prefix, lengths)


def _chunks_of_runs(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Runs of similar length together, so that little is padded, within MAX_SCORES."""
    chunk: list[_Run] = []
    for run in sorted(runs, key=lambda run: -run.length):
        if chunk and (len(chunk) + 1) * chunk[0].length ** 2 > MAX_SCORES:
            yield chunk
            chunk = []
        chunk.append(run)
    if chunk:
        yield chunk


def _chunks_of_groups(
    groups: Sequence[tuple[_Run, tuple[_Run, ...]]],
) -> Iterator[list[tuple[_Run, tuple[_Run, ...]]]]:
    """Groups with equally many completions together, within MAX_SCORES."""

    def num_scores(chunk: Sequence[tuple[_Run, tuple[_Run, ...]]]) -> int:
        longest = max(run.length for _, runs in chunk for run in runs)
        longest_prefix = max(prefix.length for prefix, _ in chunk)
        return len(chunk) * len(chunk[0][1]) * longest * (longest + longest_prefix)

    for _, equal in groupby(sorted(groups, key=lambda group: len(group[1])), key=lambda group: len(group[1])):
        chunk: list[tuple[_Run, tuple[_Run, ...]]] = []
        for group in equal:
            if chunk and num_scores([*chunk, group]) > MAX_SCORES:
                yield chunk
                chunk = []
            chunk.append(group)
        yield chunk


def _inverse(blocks: Sequence[_Block], num_tokens: int) -> NDArray[np.int64]:
    """For each packed token its row among the concatenated rows of all blocks; every token has exactly one."""
    tokens = np.concatenate([block.tokens.ravel() for block in blocks])
    real = ~np.concatenate([block.padded.ravel() for block in blocks])
    inverse = np.full(num_tokens, -1, np.int64)
    inverse[tokens[real]] = np.flatnonzero(real)
    assert real.sum() == num_tokens and (inverse >= 0).all()
    return inverse
