"""The policy loss of one token. The formulas compete, so they stand side by side; table at the bottom.

Each is a section of a recipe, `[loss.policy] kind = "clipped_ratio"`, and owns its dials. To add one, write its class
here and its line in the table; your own is `kind = "my_loss.py:MyLoss"`.

Tensors are (N,) over the completion tokens of B completions, which follow each other; `lengths` (B,) sum to N.
Throughout, ρₜ = exp(log π - log π_old) and Â is the advantage.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from pydantic import Field, field_validator
from torch import Tensor

from groupwise.config.kinds import Kinds, KindSection


class TokenLosses(NamedTuple):
    """Per-token loss and figures for the report; all (N,)."""

    loss: Tensor  # To be minimised; with gradient
    ratio: Tensor  # π / π_old (of the sequence, where the loss works with that), detached
    clipped: Tensor
    """True where a bound holds, so that the token's gradient is stopped (CISPO: its weight is)."""


class PolicyLoss(KindSection):
    """A policy loss and its dials."""

    on_policy_only: ClassVar[bool] = False
    """True where it is right only while the weights are those that sampled: one update per step."""

    @abstractmethod
    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        """Compute the loss of every token."""


class Reinforce(PolicyLoss):
    """Lₜ = -Âₜ log πₜ: REINFORCE (Williams 1992). No ratio: right on-policy only."""

    on_policy_only = True

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        ratio = (logprobs.detach() - old_logprobs).exp()
        return TokenLosses(-advantages * logprobs, ratio, torch.zeros_like(ratio, dtype=torch.bool))


class ClippedRatio(PolicyLoss):
    """Lₜ = -min(ρₜ Âₜ, clip(ρₜ, 1-ε_low, 1+ε_high) Âₜ), and at most -c Âₜ where Âₜ < 0 and a dual clip c is set.

    PPO (Schulman et al. 2017, arXiv:1707.06347, eq. 7), as used by GRPO (arXiv:2402.03300, eq. 3); two separate
    bounds are DAPO's clip-higher (Yu et al. 2025, arXiv:2503.14476, eq. 10); dual clip: Ye et al. 2020
    (arXiv:1912.09729, eq. 4).
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    """ε_low: the ratio π/π_old may fall to 1 - ε_low before its gradient stops (PPO and GRPO: 0.2; GSPO: 3e-4)."""
    clip_high: float = Field(0.2, ge=0, allow_inf_nan=True)
    """ε_high: the ratio may rise to 1 + ε_high; inf: without bound (GRPO: 0.2; DAPO's clip-higher: 0.28; GSPO:
    4e-4)."""
    dual_clip: float = Field(0.0, ge=0)
    """c > 1 bounds the loss of negative advantages at c times the advantage (Ye et al. 2020: 3); 0: off."""

    @field_validator("dual_clip")
    @classmethod
    def _above_one(cls, dual_clip: float) -> float:
        if 0 < dual_clip <= 1:
            raise ValueError("allowed are 0 (off) and numbers above 1")
        return dual_clip

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        return self.clipped((logprobs - old_logprobs).exp(), advantages)

    def clipped(self, ratio: Tensor, advantages: Tensor) -> TokenLosses:
        unclipped = ratio * advantages
        bounded = ratio.clamp(1 - self.clip_low, 1 + self.clip_high) * advantages
        objective = torch.minimum(unclipped, bounded)
        clipped = bounded < unclipped
        if self.dual_clip:
            floor = self.dual_clip * advantages
            clipped = clipped | ((advantages < 0) & (floor > objective))
            objective = torch.where(advantages < 0, torch.maximum(objective, floor), objective)
        return TokenLosses(-objective, ratio.detach(), clipped)


class SequenceRatio(ClippedRatio):
    """`clipped_ratio` with s = (π(o) / π_old(o))^(1/|o|) at every token of o: GSPO (arXiv:2507.18071, eq. 5 and 7).

    The ratio is the geometric mean over the sequence, so bounds are narrow (the paper: 3e-4 and 4e-4) and whole
    completions are clipped. On-policy its gradient is that of `clipped_ratio`.
    """

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        owner = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
        sums = logprobs.new_zeros(len(lengths)).index_add(0, owner, logprobs - old_logprobs)
        ratio = (sums / lengths).exp()
        # not ratio[owner]: on several threads its backward adds in an order that is not the same in every run
        return self.clipped(ratio.index_select(0, owner), advantages)


class ClippedWeight(PolicyLoss):
    """Lₜ = -sg(clip(ρₜ, 1-ε_low, 1+ε_high)) Âₜ log πₜ: CISPO (MiniMax-M1, arXiv:2506.13585, eq. 4).

    The weight is clipped, never the gradient: every token still teaches. The paper sets no lower bound
    (clip_low = 1).
    """

    clip_low: float = Field(0.2, ge=0, le=1)
    """ε_low: the weight is at least 1 - ε_low (CISPO: 1, no bound)."""
    clip_high: float = Field(0.2, ge=0, allow_inf_nan=True)
    """ε_high: the weight is at most 1 + ε_high (CISPO tunes it and does not print it)."""

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        ratio = (logprobs.detach() - old_logprobs).exp()
        weight = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return TokenLosses(-weight * advantages * logprobs, ratio, weight != ratio)


class SoftGate(PolicyLoss):
    """Lₜ = -(4/τ) σ(τ (ρₜ - 1)) Âₜ, τ by the sign of Âₜ: SAPO (arXiv:2511.20347, eq. 5 and 6).

    At ρ = 1 its gradient is that of the plain ratio; away from it the gate closes softly instead of at a bound.
    """

    tau_pos: float = Field(1.0, gt=0)
    """Sharpness of the gate where the advantage is positive (SAPO: 1.0)."""
    tau_neg: float = Field(1.05, gt=0)
    """Sharpness of the gate where the advantage is negative (SAPO: 1.05)."""

    def __call__(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, lengths: Tensor) -> TokenLosses:
        ratio = (logprobs - old_logprobs).exp()
        tau = torch.full_like(ratio, self.tau_neg).masked_fill(advantages > 0, self.tau_pos)
        gate = torch.sigmoid(tau * (ratio - 1)) * 4 / tau
        return TokenLosses(-gate * advantages, ratio.detach(), torch.zeros_like(ratio, dtype=torch.bool))


POLICY_LOSSES = Kinds(
    "policy loss",
    {
        "reinforce": f"{__name__}:Reinforce",
        "clipped_ratio": f"{__name__}:ClippedRatio",
        "sequence_ratio": f"{__name__}:SequenceRatio",
        "clipped_weight": f"{__name__}:ClippedWeight",
        "soft_gate": f"{__name__}:SoftGate",
    },
    default="clipped_ratio",
)


def policy_loss(kind: str, **dials: float) -> PolicyLoss:
    """Return a policy loss by its kind."""
    loss: PolicyLoss = POLICY_LOSSES.read({"kind": kind, **dials}, base=PolicyLoss)
    return loss
