"""The contribution of a token to the loss, and its weight: the loss is Σ weight · token loss. And the critic's loss.

A token's loss is policy loss, KL to the reference and entropy bonus. The weights are made once per update from all its
completions, before the first backward; a micro-batch cannot change them. Completions without signal count in every
denominator although they are skipped: their terms are exact zeros.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected
from groupwise.algorithms.policy_losses import ClippedRatio, PolicyLoss, TokenLosses
from groupwise.errors import ConfigError


class BatchSize(NamedTuple):
    """Counts over all completions of an update, skipped ones included."""

    num_completions: int
    num_tokens: int
    max_tokens: int


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
    """Return the weight of every token: completions of `lengths` (B,) -> (sum of lengths,).

    >>> token_weights(torch.tensor([1, 3]), BatchSize(2, 4, 8), "sequence")
    tensor([0.5000, 0.1667, 0.1667, 0.1667])
    """
    return AGGREGATIONS[aggregation](lengths, batch).repeat_interleave(lengths)


class Objective(NamedTuple):
    """A policy loss and the terms added to it."""

    policy_loss: PolicyLoss = ClippedRatio(kind="clipped_ratio")
    kl_coef: float = 0.0  # β of the KL term in the loss; 0: no term
    kl_estimator: str = "k3"
    kl_corrected: bool = False  # Multiply the KL term by the ratio, so that its gradient is right
    entropy_coef: float = 0.0  # Weight of the entropy, which is then pushed up


class Tokens(NamedTuple):
    """N completion tokens of B completions; (N,) unless said otherwise."""

    logprobs: Tensor  # log π of the policy that is trained; with gradient
    entropy: Tensor  # Entropy of the distribution that the token is from; with gradient
    old_logprobs: Tensor
    advantages: Tensor
    lengths: Tensor  # (B,) tokens of each completion
    ref_logprobs: Tensor | None = None
    importance: Tensor | None = None  # Weight of the policy loss of samples from another engine


class TokenLoss(NamedTuple):
    """Loss with gradient; the rest detached, for the report. All (N,)."""

    loss: Tensor
    ratio: Tensor
    clipped: Tensor
    kl: Tensor  # The estimate of KL(π ‖ π_ref); zeros without a reference


def token_loss(tokens: Tokens, objective: Objective) -> TokenLoss:
    """Lₜ = wₜ Lₜ(policy) + β KLₜ - c Hₜ, before aggregation over tokens.

    Raises:
        ValueError: a KL term without a reference.
        ConfigError: the policy loss gives something else than a number for every token, or one without a gradient.
    """
    logprobs, old = tokens.logprobs, tokens.old_logprobs
    policy = objective.policy_loss(logprobs, old, tokens.advantages, tokens.lengths)
    shapes = [tuple(getattr(part, "shape", ())) for part in policy] if isinstance(policy, TokenLosses) else []
    if shapes != [(len(logprobs),)] * 3 or policy.clipped.dtype != torch.bool:
        raise ConfigError(
            f"loss.policy.kind = {objective.policy_loss.kind!r} gave {shapes or type(policy).__name__} for "
            f"{len(logprobs)} tokens; allowed are TokenLosses of three tensors of this length, the last of truth values"
        )
    if logprobs.requires_grad and not policy.loss.requires_grad:
        raise ConfigError(
            f"loss.policy.kind = {objective.policy_loss.kind!r} gave a loss without a gradient; allowed is one that is "
            "computed from `logprobs`, not from a detached copy"
        )
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


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Lₜ = ½ max((Vₜ - Rₜ)², (clip(Vₜ, V_oldₜ ± ε) - Rₜ)²): value clipping (Engstrom et al. 2020).

    `clip` is ε in units of the reward; 0 switches clipping off. Returns (N,), to be minimised.

    >>> clipped_value_loss(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([1.0]), clip=0.2)
    tensor([0.3200])
    """
    plain = (values - returns).square()
    if not clip:
        return plain / 2
    near = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    return torch.maximum(plain, (near - returns).square()) / 2


def explained_variance(values: Tensor, returns: Tensor) -> float | None:
    """1 - Var(R - V) / Var(R): 1 is a perfect critic, 0 knows only the mean; None when all returns are equal."""
    if (returns == returns[:1]).all():  # the variance of equal numbers is not 0 but rounding, in fp32 often
        return None
    return float(1 - (returns - values).var(correction=0) / returns.var(correction=0))
