"""Packing: all tokens of a micro-batch in one row, every prompt once, its completions after it, no padding.

A `Sequences` is one prompt with the completions that continue it. `pack` lays them out, says which tokens attend to
which (as `Blocks` and `Prefix` for the attention), and at which positions the head is applied. The last prompt token
predicts the first token of every completion; the last token of a completion is predicted but never read.

torch's fused kernels (FlashAttention, Dao 2022, arXiv:2205.14135) attend within the causal sequences, on a processor
one after the other, on CUDA all in one call: they never hold more than a block of scores, give the log-sum-exp of each
row, and read slices of the packed row where they lie. What a completion sees of its prompt is a second, rectangular
call. The two are joined by their log-sum-exp, and the backward of each gets the joined output, so its probabilities are
those of the whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from groupwise.models.attention import Blocks, Layout, Prefix, Scoring, join_sinks, packed_attention, sink_gradients


@dataclass(frozen=True, slots=True)
class FusedLayout:
    """The layout of a packed row for training and prefill, where a fused kernel gives the log-sum-exp."""

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

    def calls(self, at_once: bool) -> "Iterator[_Call]":
        """Yield the calls beside the causal one: one for each prefix, or for all but corners, which share no token."""
        whole = [prefix for prefix in self.prefixes if at_once and not prefix.is_corner]
        for prefixes in ([whole] if whole else []) + [[prefix] for prefix in self.prefixes if prefix not in whole]:
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
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: FusedLayout, scale: float, sinks: Tensor | None
    ) -> Tensor:
        kernel = KERNELS[query.device.type]
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
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        layout: FusedLayout = ctx.layout
        query, key, value, out, log_sum, sinks = ctx.saved_tensors
        kernel, grad = KERNELS[query.device.type], grads[0].contiguous()
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
        return on_query, on_key, on_value, None, None, on_sinks


class Kernel(Protocol):
    """Fused attention of a device, within pairs of a range of queries and a range of keys.

    Both functions take tensors, the lengths of the ranges of queries and of keys, whether the pairs are causal, and the
    scale of scores. `forward` makes of (n, H, D) queries, (m, Hkv, D) keys and values the output (n, H, D) and the
    log-sum-exp (n, H) of the scores. `backward` gets gradient, queries, keys, values, output and log-sum-exp; it makes
    the gradients of queries, keys and values by the part of the attention that lies in the pairs.
    """

    at_once: bool

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
WIDEST = 256
"""Widest head of the kernel for CUDA, in multiples of 8."""


MAX_SCORES = 1 << 20
"""Attention scores per head that one product may hold; bounds memory, keeps the working set near the cache."""


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


def micro_batch_tokens(setting: int, device: torch.device) -> int:
    """Return the most tokens in one forward: the setting, or where that is 0 the default of the device."""
    return setting or TOKENS_PER_MICRO_BATCH[device.type]


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


def separate(num_rows: int, length: int, device: torch.device) -> "PackedLayout":
    """Return the layout of sequences of one length, one after the other."""
    return PackedLayout(tuple(_Run(row * length, length) for row in range(num_rows)), (), device)


class _Run(NamedTuple):
    """Tokens start .. start+length-1 of the packed row, which form one causal sequence."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """The layout of a packed row for training and prefill: the same for all layers but for their windows."""

    runs: tuple[_Run, ...]  # Every token of the row is in one of them
    prefixes: tuple[Prefix, ...]
    device: torch.device
    made: dict[tuple[int | None, bool], "FusedLayout | BlockLayout"] = field(default_factory=dict)
    """By window, and by whether a fused kernel computes it."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        window = scoring.window if scoring.window and scoring.window < len(query) else None
        kernel, width = KERNELS.get(value.device.type), max(key.shape[-1], value.shape[-1])
        kind = window, kernel is not None and scoring.cap is None and kernel.fits(value, width)
        if kind not in self.made:
            runs, prefixes = (self.runs, self.prefixes) if window is None else _in_window(self, window)
            if kind[1]:
                lengths = tuple(run.length for run in sorted(runs, key=lambda run: run.start))
                self.made[kind] = FusedLayout(lengths, tuple(prefixes))
            else:
                self.made[kind] = _in_blocks(runs, prefixes, self.device)
        return self.made[kind].attend(query, key, value, scoring)


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A layout where no fused kernel gives the log-sum-exp."""

    blocks: tuple[Blocks, ...]  # Every token of the row is in one of them
    prefixes: tuple[Prefix, ...]
    inverse: Tensor  # (N,) row of each token in the concatenated rows of all blocks

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        return packed_attention(query, key, value, self.blocks, self.prefixes, self.inverse, scoring)


@dataclass(frozen=True, slots=True)
class Pack:
    """A packed row, ready for the model."""

    input_ids: Tensor
    position_ids: Tensor  # (1, N) position of each token in its own sequence
    layout: Layout
    shapes: tuple[tuple[int, ...], ...]
    """Of every group, tokens of its prompt, then those that are read of each completion."""
    head_positions: Tensor
    """(M,) packed index of the token that predicts each target, in the order the sequences were given."""
    targets: Tensor
    """(M,) the completion tokens that are predicted. A token that was not sampled is no target, so the head never
    meets it and its gradient is exactly 0."""


def pack(sequences: Sequence[Sequences], device: torch.device | str = "cpu") -> Pack:
    """Lay sequences out in one row."""
    ids: list[NDArray[np.int64]] = []
    positions: list[NDArray[np.int64]] = []
    heads: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    runs: list[_Run] = []
    prefixes: list[Prefix] = []
    at = 0
    for sequence in sequences:
        prompt = np.asarray(sequence.prompt, np.int64)
        completions = [np.asarray(completion, np.int64) for completion in sequence.completions]
        if not len(prompt) or not all(len(completion) for completion in completions):
            raise ValueError("an empty prompt or completion cannot be packed")
        prefix, at = _Run(at, len(prompt)), at + len(prompt)
        ids.append(prompt)
        positions.append(np.arange(len(prompt)))
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
            runs.append(prefix)  # all completion tokens see it, as many at a time as MAX_SCORES allows
            end, size = prefix.start + prefix.length, max(1, MAX_SCORES // prefix.length)
            seen = slice(prefix.start, end)
            prefixes += [Prefix(slice(start, min(start + size, at)), seen) for start in range(end, at, size)]
    device = torch.device(device)

    def tensor(array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    return Pack(
        input_ids=tensor(np.concatenate(ids))[None],
        position_ids=tensor(np.concatenate(positions))[None],
        shapes=tuple((len(s.prompt), *(len(completion) - 1 for completion in s.completions)) for s in sequences),
        layout=PackedLayout(tuple(run for run in runs if run.length), tuple(prefixes), device),
        head_positions=tensor(np.concatenate(heads) if heads else np.zeros(0, np.int64)),
        targets=tensor(np.concatenate(targets) if targets else np.zeros(0, np.int64)),
    )


def _in_blocks(runs: Sequence[_Run], prefixes: Sequence[Prefix], device: torch.device) -> BlockLayout:
    blocks, tokens, paddings = [], [], []
    for chunk in _chunks(runs):
        starts, lengths = np.array([[run.start for run in chunk], [run.length for run in chunk]])[..., None]
        offsets = np.arange(lengths.max())[None]
        padded = offsets >= lengths
        indices = np.where(padded, 0, starts + offsets)
        padding = torch.from_numpy(padded[:, :, None, None]).to(device) if padded.any() else None
        blocks.append(Blocks(torch.from_numpy(indices).to(device), padding))
        tokens.append(indices.ravel())
        paddings.append(padded.ravel())
    # each packed token stands in exactly one row among the concatenated rows of all blocks
    real, num_tokens = ~np.concatenate(paddings), sum(run.length for run in runs)
    inverse = np.full(num_tokens, -1, np.int64)
    inverse[np.concatenate(tokens)[real]] = np.flatnonzero(real)
    assert real.sum() == num_tokens and (inverse >= 0).all()
    return BlockLayout(tuple(blocks), tuple(prefixes), torch.from_numpy(inverse).to(device))


def _in_window(row: PackedLayout, window: int) -> tuple[Sequence[_Run], Sequence[Prefix]]:
    """Sequences in pieces as long as a window: each is causal, and sees of the piece before it what the window holds.

    Before the first piece of a completion stands its prompt.
    """
    pieces, parts = list[_Run](), list[Prefix]()
    for start, length in row.runs:
        before = next((p.prompt for p in row.prefixes if p.tokens.start <= start < p.tokens.stop), None)
        for at in range(start, start + length, window):
            piece = slice(at, min(at + window, start + length))
            pieces.append(_Run(at, piece.stop - at))
            if before is not None:
                parts += _reached(piece, before, window)
            before = piece
    return pieces, parts


def _reached(tokens: slice, before: slice, window: int) -> Iterator[Prefix]:
    """Parts of m tokens before others that a window holds: token i of these sees j of those if i + m - j < window.

    First the tokens that see all of them. The others see the last ones, and of a corner each one less than the token
    before it.
    """
    length, most = before.stop - before.start, min(tokens.stop - tokens.start, window - 1)
    free = min(max(0, window - length), most)
    if free:
        yield Prefix(slice(tokens.start, tokens.start + free), before)
    if rest := most - free:
        first = before.start + free + length - window + 1
        yield Prefix(slice(tokens.start + free, tokens.start + most), slice(first + rest - 1, before.stop))
        if rest > 1:
            corner = slice(tokens.start + free, tokens.start + most - 1), slice(first, first + rest - 1)
            yield Prefix(*corner, is_corner=True)


def _chunks(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Runs of similar length together, so that little is padded, within MAX_SCORES."""
    chunk: list[_Run] = []
    for run in sorted(runs, key=lambda run: -run.length):
        if chunk and (len(chunk) + 1) * chunk[0].length ** 2 > MAX_SCORES:
            yield chunk
            chunk = []
        chunk.append(run)
    if chunk:
        yield chunk
