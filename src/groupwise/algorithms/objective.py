"""One token's whole contribution to the loss: policy loss, KL to the reference, entropy bonus."""

from typing import NamedTuple

from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise.algorithms.policy_losses import ClippedRatio, PolicyLoss


class Objective(NamedTuple):
    """Which policy loss, and what is added to it."""

    policy_loss: PolicyLoss = ClippedRatio(kind="clipped_ratio")
    kl_coef: float = 0.0
    """β of the KL term in the loss; 0: no term."""
    kl_estimator: str = "k3"
    kl_corrected: bool = False
    """Multiply the KL term by the ratio, so that its gradient is right."""
    entropy_coef: float = 0.0
    """Weight of the entropy, which is then pushed up."""


class Tokens(NamedTuple):
    """What is known about N completion tokens of B completions; (N,) unless said otherwise."""

    logprobs: Tensor
    """Of the policy that is trained; with gradient."""
    entropy: Tensor
    """Of the distribution the token stands in; with gradient."""
    old_logprobs: Tensor
    advantages: Tensor
    lengths: Tensor
    """(B,) tokens of each completion."""
    ref_logprobs: Tensor | None = None
    importance: Tensor | None = None
    """Weight of the policy loss of samples from another engine."""


class TokenLoss(NamedTuple):
    """Loss with gradient; the rest detached, for the report. All (N,)."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor
    """The estimate of KL(π ‖ π_ref); zeros without a reference."""


def token_loss(tokens: Tokens, objective: Objective) -> TokenLoss:
    """Lₜ = wₜ Lₜ(policy) + β KLₜ - c Hₜ, before aggregation over tokens.

    Raises:
        ValueError: a KL term without a reference.
    """
    logprobs, old = tokens.logprobs, tokens.old_logprobs
    policy = objective.policy_loss(logprobs, old, tokens.advantages, tokens.lengths)
    loss = policy.loss if tokens.importance is None else policy.loss * tokens.importance
    kl = logprobs.new_zeros(len(logprobs))
    if tokens.ref_logprobs is not None:
        kl = KL_ESTIMATORS[objective.kl_estimator](logprobs, tokens.ref_logprobs)
    elif objective.kl_coef:
        raise ValueError(f"a KL term with coefficient {objective.kl_coef} needs the reference's log-probabilities")
    if objective.kl_coef:
        term = importance_corrected(kl, logprobs, old) if objective.kl_corrected else kl
        loss = loss + objective.kl_coef * term
    if objective.entropy_coef:
        loss = loss - objective.entropy_coef * tokens.entropy
    return TokenLoss(loss, policy.ratio, policy.clipped, kl.detach())
