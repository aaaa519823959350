"""Attention of a packed row on CUDA by torch's FlexAttention: one kernel, and a block mask that knows shared prompts.

FlexAttention (Dong et al. 2024, arXiv:2412.05496) computes the blocks of 128 × 128 scores in which something is visible
and no others. Which ones those are follows from the layout alone: they are counted here, pair by pair, and the N × N
mask never exists. The compiled kernel is for CUDA; torch's eager form holds all scores and is for tests (`eager_form`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import flex_attention as torch_flex
from torch.nn.attention.flex_attention import BlockMask
from transformers import PreTrainedModel

from groupwise.errors import ModelError, UnsupportedModelError
from groupwise.models.attention import Scoring

BLOCK = 128

Shapes = Sequence[Sequence[int]]
"""Of every group in the order of the row: tokens of its prompt, then those that are read of each completion."""


@dataclass(frozen=True, slots=True)
class FlexLayout:
    """The layout of a packed row for training, where `model.attention = "flex"`."""

    mask: BlockMask

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        if scoring.window or scoring.cap or scoring.sinks is not None:
            raise UnsupportedModelError(
                'model.attention = "flex" knows no windows, sinks and soft caps, and this model has them; set "packed"'
            )
        # under autocast normalised queries and keys come in fp32 beside values in bf16: all take the values' dtype
        query, key = query.to(value.dtype), key.to(value.dtype)
        by_head = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
        attend = torch_flex.flex_attention if _eager_is_permitted else _compiled()
        out: Tensor = attend(
            *by_head, block_mask=self.mask, scale=scoring.scale, enable_gqa=query.shape[1] != key.shape[1]
        )
        return out[0].transpose(0, 1)


def refuse_without_cuda(device: str) -> None:
    """Refuse `model.attention = "flex"` where it cannot be computed."""
    if device != "cuda" and not _eager_is_permitted:
        raise ModelError(
            f'model.attention = "flex" is compiled for CUDA, and the model is on device {device}: set model.attention '
            '= "packed", which every device has'
        )


_ATTRIBUTE = "groupwise_flex"


def set_flex(model: PreTrainedModel, chosen: bool) -> None:
    """Choose FlexAttention, or the packed kernel, for the attention of packs."""
    setattr(model.base_model, _ATTRIBUTE, chosen)


def takes_flex(body: nn.Module) -> bool:
    """Tell whether the body of a model computes the attention of packs by FlexAttention."""
    return bool(getattr(body, _ATTRIBUTE, False))


def block_mask(shapes: Shapes, device: torch.device) -> BlockMask:
    """Return the mask of a row, whose tokens see their own prompt and their own sequence, up to themselves."""
    pairs = visible_pairs(shapes)
    some, whole = (pairs > 0) & (pairs < BLOCK * BLOCK), pairs == BLOCK * BLOCK
    num_tokens = sum(map(sum, shapes))
    groups = np.repeat(np.arange(len(shapes)), [sum(shape) for shape in shapes])
    parts = np.concatenate([np.repeat(np.arange(len(shape)), shape) for shape in shapes])  # 0 is the prompt
    filling = (0, -len(groups) % BLOCK)  # the kernel asks about whole blocks
    group, part = (
        torch.from_numpy(np.pad(array, filling, constant_values=-1).astype(np.int32)).to(device)
        for array in (groups, parts)
    )

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = (part[key] == 0) | (part[key] == part[query])
        return (key <= query) & (group[key] == group[query]) & same

    counts, indices, full_counts, full_indices = (
        torch.from_numpy(array).to(device) for array in (*_listed(some), *_listed(whole))
    )
    mask: BlockMask = BlockMask.from_kv_blocks(
        counts,
        indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=BLOCK,
        mask_mod=sees,
        seq_lengths=(num_tokens, num_tokens),
    )
    return mask


def mask_bytes(num_tokens: int) -> int:
    """Return the bytes of the mask of a row of `num_tokens`.

    Four lists name the blocks of each row and of each column that are seen in part or whole, in int32, with their
    counts; two int32 per token say which group and which sequence it belongs to.
    """
    num_blocks = -(-num_tokens // BLOCK)
    return 4 * (4 * num_blocks * (num_blocks + 1) + 2 * num_blocks * BLOCK)


def visible_pairs(shapes: Shapes) -> NDArray[np.int64]:
    """Return (B, B) the number of visible pairs of a query (row) and a key (column) in each block of scores."""
    num_blocks = -(-sum(map(sum, shapes)) // BLOCK)
    pairs = np.zeros((num_blocks, num_blocks), np.int64)
    at = 0
    for prompt, *completions in shapes:
        begin, at = at, at + prompt
        _add_causal(pairs, begin, at)
        for length in completions:
            _add_causal(pairs, at, at + length)
            at += length
        if at > begin + prompt:
            (rows, queries), (columns, keys) = _overlap(begin + prompt, at), _overlap(begin, begin + prompt)
            pairs[rows, columns] += np.outer(queries, keys)
    return pairs


def _overlap(start: int, stop: int) -> tuple[slice, NDArray[np.int64]]:
    """Blocks that tokens start .. stop-1 stand in, and how many of them in each."""
    first, last = start // BLOCK, -(-stop // BLOCK)
    edges = np.clip(np.arange(first, last + 1) * BLOCK, start, stop)
    return slice(first, last), np.diff(edges)


def _add_causal(pairs: NDArray[np.int64], start: int, stop: int) -> None:
    if start == stop:
        return
    where, counts = _overlap(start, stop)
    pairs[where, where] += np.tril(np.outer(counts, counts), -1) + np.diag(counts * (counts + 1) // 2)


def _listed(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Number of chosen blocks of each row (1, 1, B), and their indices before the others' (1, 1, B, B)."""
    counts = chosen.sum(1, dtype=np.int32)
    return counts[None, None], np.argsort(~chosen, axis=1, kind="stable").astype(np.int32)[None, None]


@cache
def _compiled() -> Any:
    """Compiled when it is first used."""
    return torch.compile(torch_flex.flex_attention)


_eager_is_permitted = False


@contextmanager
def eager_form() -> Iterator[None]:
    """Compute FlexAttention in torch's eager form, on any device, while the context is open; for tests.

    It holds all N × N scores. On a processor torch refuses its gradient, though the eager form has one: what refuses is
    left out meanwhile. Not for several threads.
    """
    global _eager_is_permitted
    refuse = torch_flex._validate_device
    _eager_is_permitted, torch_flex._validate_device = True, lambda *_: None
    try:
        yield
    finally:
        _eager_is_permitted, torch_flex._validate_device = False, refuse
