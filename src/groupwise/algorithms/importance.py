"""Correction for samples from another engine: its distribution μ differs a little from the policy π_old it serves.

Each token's policy loss is weighted with π_old / μ, bounded, because a few huge weights would drown the rest: bounding
trades bias for variance (Ionides 2008; for language models: fengyao 2025, "TIS"; IcePop masks instead).
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor


class ImportanceWeights(NamedTuple):
    """Weights, and the sums of which the effective sample size is made."""

    weights: Tensor  # (N,) factor of each token's policy loss; no gradient
    bounded: Tensor  # (N,) True where the weight was truncated or masked
    sum: Tensor  # () Σ w over tokens (or over sequences, where the weight is the sequence's)
    sum_squares: Tensor  # () Σ w², over the same; (Σ w)² / Σ w² is the effective sample size


def importance_weights(
    old_logprobs: Tensor,
    sampling_logprobs: Tensor,
    lengths: Tensor,
    level: Literal["token", "sequence"] = "token",
    bound: Literal["truncate", "mask"] = "truncate",
    cap: float = 2.0,
) -> ImportanceWeights:
    """w = π_old / μ per token or per sequence; above `cap` cut down to it (truncate) or to 0 (mask).

    Token weights ignore the prefix's ratio, so they are biased; sequence weights are right and noisy.

    Args:
        old_logprobs: (N,) of the policy that should have sampled, from the trainer.
        sampling_logprobs: (N,) of the engine that did sample.
        lengths: (B,) tokens of each completion.
        level: which ratio.
        bound: what happens above the cap.
        cap: largest weight, > 0 (TRL 1.16: 3).
    """
    log_ratio = (old_logprobs - sampling_logprobs).detach()
    if level == "sequence":
        owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
        log_ratio = log_ratio.new_zeros(len(lengths)).index_add(0, owner, log_ratio)
    ratio = log_ratio.exp()
    over = ratio > cap
    weights = torch.where(over, cap if bound == "truncate" else 0.0, ratio)
    totals = weights.sum(), weights.square().sum()
    if level == "sequence":
        weights, over = weights[owner], over[owner]
    return ImportanceWeights(weights, over, *totals)
