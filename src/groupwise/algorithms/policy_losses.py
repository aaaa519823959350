"""What one token contributes to the policy loss. Inputs and outputs are (N,) over completion tokens."""

from typing import NamedTuple

import torch
from torch import Tensor


class PolicyLoss(NamedTuple):
    """Per-token loss and what a person wants to know about it; all (N,)."""

    loss: Tensor
    """To be minimised; with gradient."""
    ratio: Tensor
    """π / π_old, detached."""
    clipped: Tensor
    """True where the clip holds, so that the token has no gradient."""


def clipped_ratio(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> PolicyLoss:
    """Lₜ = -min(ρₜ Âₜ, clip(ρₜ, 1-ε_low, 1+ε_high) Âₜ) with ρₜ = exp(log π - log π_old).

    PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7), as used by GRPO (arXiv:2402.03300, eq. 3); two separate
    bounds are DAPO's clip-higher (Yu et al. 2025, arXiv:2503.14476, eq. 10).

    >>> clipped_ratio(torch.zeros(1).log_softmax(0), torch.tensor([-0.5]), torch.ones(1), 0.2, 0.2).loss
    tensor([-1.2000])
    """
    ratio = (logprobs - old_logprobs).exp()
    unclipped = ratio * advantages
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return PolicyLoss(-torch.minimum(unclipped, bounded), ratio.detach(), (bounded < unclipped).detach())
