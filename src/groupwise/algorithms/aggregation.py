"""How token losses become one loss: a weight for every token, so that the loss is Σ weight · token loss.

The weights are made once per update from all its completions, before the first backward; a micro-batch cannot change
them. Completions without signal count in every denominator although they are skipped: their terms are exact zeros.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class BatchSize(NamedTuple):
    """Counts over all completions of an update, skipped ones included."""

    num_completions: int
    num_tokens: int
    max_tokens: int
    """Most tokens a completion may have (`sampling.max_tokens`)."""


def constant_length(lengths: Tensor, batch: BatchSize) -> Tensor:
    """1 / (completions × max_tokens): Dr. GRPO (arXiv:2503.20783, §3.2). No bias towards short or long answers."""
    return torch.full_like(lengths, 1 / (batch.num_completions * batch.max_tokens), dtype=torch.float32)


def token_mean(lengths: Tensor, batch: BatchSize) -> Tensor:
    """1 / all tokens: DAPO (arXiv:2503.14476, eq. 8). Every token counts the same; long answers count more."""
    return torch.full_like(lengths, 1 / batch.num_tokens, dtype=torch.float32)


def sequence_mean(lengths: Tensor, batch: BatchSize) -> Tensor:
    """1 / (completions × own length): GRPO (arXiv:2402.03300, eq. 3).

    Each answer counts the same, so long wrong answers are punished less per token and grow (arXiv:2503.20783, §3.1).
    """
    return 1 / (batch.num_completions * lengths.float())


AGGREGATIONS: dict[str, Callable[[Tensor, BatchSize], Tensor]] = {
    "constant": constant_length,
    "token": token_mean,
    "sequence": sequence_mean,
}


def token_weights(lengths: Tensor, batch: BatchSize, aggregation: str) -> Tensor:
    """Weight of every token: completions of `lengths` (B,) -> (sum of lengths,).

    >>> token_weights(torch.tensor([1, 3]), BatchSize(2, 4, 8), "sequence")
    tensor([0.5000, 0.1667, 0.1667, 0.1667])
    """
    return AGGREGATIONS[aggregation](lengths, batch).repeat_interleave(lengths)
