"""Packing: all tokens of a micro-batch in one row, every prompt once, its completions after it, no padding.

A `Sequences` is one prompt with the completions that continue it. `pack` lays them out, says which tokens attend to
which (causal sequences, and `Prefix` for what stands before them), and at which positions the head is applied. The last
prompt token predicts the first token of every completion; the last token of a completion is predicted but never read.
What all prompts begin with, such as a system text or an example, stands once, before them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from groupwise.models import attention
from groupwise.models.attention import Layout, Scoring
from groupwise.models.fused import FusedLayout, Prefix

MIN_SHARED = 16
"""Fewest tokens that all prompts of a row begin with for which one more product in every layer pays."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """One prompt and its completions, as token ids."""

    prompt: Sequence[int] | NDArray[np.int64]
    completions: Sequence[Sequence[int] | NDArray[np.int64]]
    sampled: Sequence[NDArray[np.bool_]] | None = None
    """For each completion (T,) the tokens that are predicted; the others are only read. None: all are predicted."""

    @property
    def num_read(self) -> int:
        return len(self.prompt) + sum(map(len, self.completions))

    @property
    def masks(self) -> list[NDArray[np.bool_]]:
        """(T,) of every completion: True at the tokens that are predicted."""
        return [np.ones(len(c), np.bool_) for c in self.completions] if self.sampled is None else list(self.sampled)

    @property
    def num_predicted(self) -> int:
        return sum(int(np.count_nonzero(mask)) for mask in self.masks)


TOKENS_PER_MICRO_BATCH = {"cpu": 1024, "cuda": 16384}
"""Defaults: on a processor a micro-batch that its caches hold, and enough of them for all cores."""


def micro_batch_tokens(setting: int, device: torch.device, shared: int = 0) -> int:
    """Return the most tokens in one forward beside those that all share: the setting less these, at least 1.

    Where it is 0, the device's default less these, at least half of it: then no micro-batch computes them in vain.
    """
    default = TOKENS_PER_MICRO_BATCH[device.type]
    return max(1, setting - shared) if setting else max(default // 2, default - shared)


def micro_batches(num_tokens: Sequence[int], budget: int) -> Iterator[range]:
    """Yield consecutive ranges of items whose tokens sum to at most the budget; an item over it stands alone.

    They are of nearly equal size, as few as the budget allows, so that threads that share them end together.

    >>> [list(chunk) for chunk in micro_batches([5, 5, 20, 1], budget=10)]
    [[0, 1], [2], [3]]
    >>> [list(chunk) for chunk in micro_batches([4] * 6, budget=22)]
    [[0, 1, 2], [3, 4, 5]]
    """
    whole = sum(num_tokens)
    even = whole / max(1, -(-whole // budget))
    start, total = 0, 0
    for index, count in enumerate(num_tokens):
        if index > start and (total + count > budget or total >= even):
            yield range(start, index)
            start, total = index, 0
        total += count
    if start < len(num_tokens):
        yield range(start, len(num_tokens))


def num_shared(prompts: Sequence[Sequence[int] | NDArray[np.int64]]) -> int:
    """Return the number of tokens that all prompts begin with, if they pay to be computed once; each keeps its last."""
    first = np.asarray(prompts[0] if len(prompts) > 1 else ())[:-1]
    for prompt in prompts[1:]:
        first = first[: max(0, len(prompt) - 1)]
        differs = np.flatnonzero(first != np.asarray(prompt)[: len(first)])
        first = first[: differs[0] if len(differs) else None]
        if len(first) < MIN_SHARED:
            return 0
    return len(first)


def separate(num_rows: int, length: int) -> "PackedLayout":
    """Return the layout of sequences of one length, one after the other."""
    return PackedLayout(tuple(_Run(row * length, length) for row in range(num_rows)), ())


class _Run(NamedTuple):
    """Tokens start .. start+length-1 of the packed row, which form one causal sequence."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """The layout of a packed row for training and prefill: the same for all layers but for their windows."""

    runs: tuple[_Run, ...]  # Every token of the row is in one of them
    prefixes: tuple[Prefix, ...]
    made: dict[int | None, FusedLayout] = field(default_factory=dict)  # By window

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        window = scoring.window if scoring.window and scoring.window < len(query) else None
        if window not in self.made:
            runs, prefixes = (self.runs, self.prefixes) if window is None else _in_window(self, window)
            lengths = tuple(run.length for run in sorted(runs, key=lambda run: run.start))
            self.made[window] = FusedLayout(lengths, tuple(prefixes))
        return self.made[window].attend(query, key, value, scoring)


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed row, ready for the model."""

    input_ids: Tensor
    position_ids: Tensor  # (1, N) position of each token in its own sequence
    layout: Layout
    num_shared: int  # Tokens that all prompts begin with: the first of the row
    shapes: tuple[tuple[int, ...], ...]
    """Of every group, other tokens of its prompt, then those that are read of each completion."""
    head_positions: Tensor
    """(M,) packed index of the token that predicts each target, in the order the sequences were given."""
    targets: Tensor
    """(M,) the completion tokens that are predicted. A token that was not sampled is no target, so the head never
    meets it and its gradient is exactly 0."""


def pack(sequences: Sequence[Sequences], device: torch.device | str = "cpu", shares: bool = True) -> Pack:
    """Lay sequences out in one row; with `shares`, what all prompts begin with stands there once."""
    shared = num_shared([sequence.prompt for sequence in sequences]) if shares else 0
    ids: list[NDArray[np.int64]] = [np.asarray(sequences[0].prompt, np.int64)[:shared]]
    positions: list[NDArray[np.int64]] = [np.arange(shared)]
    heads: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    runs: list[_Run] = [_Run(0, shared)]
    prefixes: list[Prefix] = []
    at = shared
    for sequence in sequences:
        prompt = np.asarray(sequence.prompt, np.int64)
        completions = [np.asarray(completion, np.int64) for completion in sequence.completions]
        if not len(prompt) or not all(len(completion) for completion in completions):
            raise ValueError("an empty prompt or completion cannot be packed")
        prefix = _Run(at, len(prompt) - shared)
        at += prefix.length
        ids.append(prompt[shared:])
        positions.append(np.arange(shared, len(prompt)))
        begin = len(runs)
        for completion, predicted in zip(completions, sequence.masks, strict=True):
            read = completion[:-1]
            ids.append(read)
            positions.append(np.arange(len(prompt), len(prompt) + len(read)))
            heads.append(np.concatenate(([prefix.start + prefix.length - 1], np.arange(at, at + len(read))))[predicted])
            targets.append(completion[predicted])
            runs.append(_Run(at, len(read)))
            at += len(read)
        if len(completions) == 1:  # prompt and completion are neighbours: one causal sequence, no prefix needed
            runs[begin:] = [_Run(prefix.start, at - prefix.start)]
        else:
            runs.append(prefix)
            prefixes += _seen(prefix, at)
    prefixes += _seen(runs[0], at, depth=1) if shared else ()
    device = torch.device(device)

    def tensor(array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Pack(
        input_ids=tensor(np.concatenate(ids))[None],
        position_ids=tensor(np.concatenate(positions))[None],
        num_shared=shared,
        shapes=tuple((len(s.prompt) - shared, *(len(c) - 1 for c in s.completions)) for s in sequences),
        layout=PackedLayout(tuple(run for run in runs if run.length), tuple(prefixes)),
        head_positions=tensor(np.concatenate(heads) if heads else np.zeros(0, np.int64)),
        targets=tensor(np.concatenate(targets) if targets else np.zeros(0, np.int64)),
    )


def _seen(run: _Run, stop: int, depth: int = 0) -> Iterator[Prefix]:
    """All tokens behind a run see it, as many of them at a time as MAX_SCORES allows."""
    end, size = run.start + run.length, max(1, attention.MAX_SCORES // run.length)
    for start in range(end, stop, size):
        yield Prefix(slice(start, min(start + size, stop)), slice(run.start, end), depth=depth)


def _in_window(row: PackedLayout, window: int) -> tuple[Sequence[_Run], Sequence[Prefix]]:
    """Sequences in pieces as long as a window: each is causal, and sees of what stands before it what the window holds.

    Before the first piece of a completion stands its prompt, and before that what all prompts begin with.
    """
    pieces, parts = list[_Run](), list[Prefix]()
    for start, length in row.runs:
        before = [p.prompt for p in reversed(row.prefixes) if p.tokens.start <= start < p.tokens.stop]
        for at in range(start, start + length, window):
            piece = slice(at, min(at + window, start + length))
            pieces.append(_Run(at, piece.stop - at))
            left = window
            for depth, seen in enumerate(reversed(before)):
                if left <= 1:
                    break
                parts += _reached(piece, seen, left, depth)
                left -= seen.stop - seen.start
            before.append(piece)
    return pieces, parts


def _reached(tokens: slice, before: slice, window: int, depth: int) -> Iterator[Prefix]:
    """Parts of m tokens before others that a window holds: token i of these sees j of those if i + m - j < window.

    First the tokens that see all of them. The others see the last ones, and of a corner each one less than the token
    before it. The window is what tokens that stand between leave of it.
    """
    length, most = before.stop - before.start, min(tokens.stop - tokens.start, window - 1)
    free = min(max(0, window - length), most)
    if free:
        yield Prefix(slice(tokens.start, tokens.start + free), before, depth=depth)
    if rest := most - free:
        first = before.start + free + length - window + 1
        seen = slice(first + rest - 1, before.stop)
        yield Prefix(slice(tokens.start + free, tokens.start + most), seen, depth=depth)
        if rest > 1:
            corner = slice(tokens.start + free, tokens.start + most - 1), slice(first, first + rest - 1)
            yield Prefix(*corner, is_corner=True)
