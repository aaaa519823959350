"""What one token contributes to the policy loss. The formulas compete, so they stand side by side; table at the bottom.

Tensors are (N,) over the completion tokens of B completions, which follow each other; `lengths` (B,) sum to N.
Throughout, ρₜ = exp(log π - log π_old) and Â is the advantage.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Bounds(NamedTuple):
    """How far the ratio may go; what does not apply to a loss is not read by it."""

    clip_low: float = 0.2
    """ε_low."""
    clip_high: float = 0.2
    """ε_high."""
    dual_clip: float = 0.0
    """c > 1: the loss of a negative advantage is at most -cÂ; 0 switches it off."""
    tau_pos: float = 1.0
    """Sharpness of SAPO's gate for positive advantages."""
    tau_neg: float = 1.05
    """Sharpness of SAPO's gate for negative advantages."""


class PolicyLoss(NamedTuple):
    """Per-token loss and what a person wants to know about it; all (N,)."""

    loss: Tensor
    """To be minimised; with gradient."""
    ratio: Tensor
    """π / π_old (of the sequence, where the loss works with that), detached."""
    clipped: Tensor
    """True where a bound holds, so that the token's gradient is stopped (CISPO: its weight is)."""


def reinforce(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor, bounds: Bounds
) -> PolicyLoss:
    """Lₜ = -Âₜ log πₜ: REINFORCE (Williams 1992). No ratio: right on-policy only."""
    ratio = (logprobs.detach() - old_logprobs).exp()
    return PolicyLoss(-advantages * logprobs, ratio, torch.zeros_like(ratio, dtype=torch.bool))


def clipped_ratio(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor, bounds: Bounds
) -> PolicyLoss:
    """Lₜ = -min(ρₜ Âₜ, clip(ρₜ, 1-ε_low, 1+ε_high) Âₜ), and at most -c Âₜ where Âₜ < 0 and a dual clip c is set.

    PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7), as used by GRPO (arXiv:2402.03300, eq. 3); two separate
    bounds are DAPO's clip-higher (Yu et al. 2025, arXiv:2503.14476, eq. 10); dual clip: Ye et al. 2020
    (arXiv:1912.09729, eq. 4).
    """
    return _clipped((logprobs - old_logprobs).exp(), advantages, bounds)


def sequence_ratio(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor, bounds: Bounds
) -> PolicyLoss:
    """As `clipped_ratio` with s = (π(o) / π_old(o))^(1/|o|) at every token of o: GSPO (arXiv:2507.18071, eq. 5 and 7).

    The ratio is the geometric mean over the sequence, so bounds are narrow (the paper: 3e-4 and 4e-4) and whole
    completions are clipped. On-policy its gradient is that of `clipped_ratio`.
    """
    owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    sums = logprobs.new_zeros(len(lengths)).index_add(0, owner, logprobs - old_logprobs)
    ratio = (sums / lengths).exp()
    # not ratio[owner]: on several threads its backward adds in an order that is not the same in every run
    return _clipped(ratio.index_select(0, owner), advantages, bounds)


def _clipped(ratio: Tensor, advantages: Tensor, bounds: Bounds) -> PolicyLoss:
    unclipped = ratio * advantages
    bounded = ratio.clamp(1 - bounds.clip_low, 1 + bounds.clip_high) * advantages
    objective = torch.minimum(unclipped, bounded)
    clipped = bounded < unclipped
    if bounds.dual_clip:
        floor = bounds.dual_clip * advantages
        clipped = clipped | ((advantages < 0) & (floor > objective))
        objective = torch.where(advantages < 0, torch.maximum(objective, floor), objective)
    return PolicyLoss(-objective, ratio.detach(), clipped)


def clipped_weight(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor, bounds: Bounds
) -> PolicyLoss:
    """Lₜ = -sg(clip(ρₜ, 1-ε_low, 1+ε_high)) Âₜ log πₜ: CISPO (MiniMax-M1, arXiv:2506.13585, eq. 4).

    The weight is clipped, never the gradient: every token goes on teaching. The paper sets no lower bound
    (clip_low = 1).
    """
    ratio = (logprobs.detach() - old_logprobs).exp()
    weight = ratio.clamp(1 - bounds.clip_low, 1 + bounds.clip_high)
    return PolicyLoss(-weight * advantages * logprobs, ratio, weight != ratio)


def soft_gate(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor, bounds: Bounds
) -> PolicyLoss:
    """Lₜ = -(4/τ) σ(τ (ρₜ - 1)) Âₜ, τ by the sign of Âₜ: SAPO (arXiv:2511.20347, eq. 5 and 6).

    At ρ = 1 its gradient is that of the plain ratio; away from it the gate closes softly instead of at a bound.
    """
    ratio = (logprobs - old_logprobs).exp()
    tau = torch.full_like(ratio, bounds.tau_neg).masked_fill(advantages > 0, bounds.tau_pos)
    gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    return PolicyLoss(-gate * advantages, ratio.detach(), torch.zeros_like(ratio, dtype=torch.bool))


POLICY_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor, Bounds], PolicyLoss]] = {
    "reinforce": reinforce,
    "clipped_ratio": clipped_ratio,
    "sequence_ratio": sequence_ratio,
    "clipped_weight": clipped_weight,
    "soft_gate": soft_gate,
}
