"""The expected gradient of an estimator, its bias, variance and direction, by going through every possible batch.

What is measured is the code that trains: the functions of `algorithms` are called on the enumerated batches; only the
sum over batches, weighted with their probability, is done here.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.advantages import AdvantageEstimator, step_advantages
from groupwise.algorithms.importance import importance_weights
from groupwise.algorithms.objective import BatchSize, Objective, Tokens, token_loss, token_weights
from groupwise_lab.oracle.batches import Batches, all_batches
from groupwise_lab.oracle.setting import Policies, Setting, TokenAdvantages
from groupwise_lab.oracle.world import World


@dataclass(frozen=True)
class Estimated:
    """An estimator against the truth."""

    mean: Tensor
    """(K, V) expected gradient, times the nominal factor that makes an unbiased one equal ∇J."""
    truth: Tensor
    """(K, V) ∇J."""
    variance: float
    """Trace of the covariance of one batch's gradient, in units of |∇J|²."""
    clipped: float
    """Expected share of a batch's tokens at which a bound of the policy loss holds."""

    @property
    def cosine(self) -> float:
        """1: the right direction."""
        return float((self.mean * self.truth).sum() / (self.mean.norm() * self.truth.norm()))

    @property
    def scale(self) -> float:
        """Length along the truth: 1 for an unbiased estimator."""
        return float((self.mean * self.truth).sum() / self.truth.square().sum())

    @property
    def bias(self) -> float:
        """|E[g] - ∇J| / |∇J|: everything that is wrong, scale included."""
        return float((self.mean - self.truth).norm() / self.truth.norm())

    @property
    def noise(self) -> float:
        """Standard deviation of one batch's gradient over the length of its mean: what a step must average away."""
        return math.sqrt(self.variance) * float(self.truth.norm() / self.mean.norm())

    def scales(self, num_prompts: int) -> list[float]:
        """`scale` of each prompt's share of the gradient: equal where prompts are not weighted against each other."""
        mean, truth = self.mean.view(num_prompts, -1), self.truth.view(num_prompts, -1)
        return ((mean * truth).sum(1) / truth.square().sum(1)).tolist()


def estimate(world: World, policies: Policies, setting: Setting) -> Estimated:
    """An estimator's mean and variance over all batches.

    Raises:
        ConfigError: there are too many.
    """
    batches = all_batches(world, policies.sampler, setting)
    estimates = _gradients(world, policies, setting, batches)
    gradients = estimates.gradients * _nominal(world, policies.sampler, setting)
    mean = torch.einsum("b,bkv->kv", batches.chances, gradients)
    truth = world.gradient(policies.current)
    spread = float((batches.chances * (gradients - mean).square().sum((1, 2))).sum() / truth.square().sum())
    return Estimated(mean, truth, spread, float((batches.chances * estimates.clipped).sum()))


def _nominal(world: World, sampler: Tensor, setting: Setting) -> float:
    """Return the aggregation's unit to divide by: tokens per completion, which makes a sum over tokens comparable."""
    if setting.aggregation == "constant":
        return float(world.max_length)
    return float((world.probabilities(sampler) * world.lengths).sum(-1).mean())


class _Gradients(NamedTuple):
    gradients: Tensor
    """(B, K, V) ascent direction of each batch."""
    clipped: Tensor
    """(B,) share of its tokens at which a bound held."""


def _gradients(world: World, policies: Policies, setting: Setting, batches: Batches) -> _Gradients:
    """All batches at once, by the code that trains."""
    at = batches.prompts.flatten(1), batches.sequences.flatten(1)
    lengths = world.lengths[at[1]]
    if setting.truncated == "mask":
        lengths = lengths.masked_fill(world.truncated[at[1]], 0)
    mask = torch.arange(world.max_length) < lengths[..., None]
    current, old, sampling = (world.token_logprobs(theta).detach()[at][mask] for theta in policies)
    advantages = _advantages(world, setting, batches)[mask]
    kept, logprobs = lengths[lengths > 0], current.requires_grad_()
    weighing = _importance(setting, old, sampling, kept)
    tokens = Tokens(logprobs, torch.zeros_like(logprobs), old, advantages, kept, importance=weighing)
    losses = token_loss(tokens, Objective(setting.policy_loss))
    loss = (_token_weights(world, setting, lengths)[mask] * losses.loss).sum()
    slopes = -torch.autograd.grad(loss, logprobs)[0]  # ascent: minus the loss's slope
    rows = _by_logit(policies.current, slopes, world.states[at][mask], world.tokens[at[1]][mask])
    batch = torch.arange(len(lengths))[:, None, None].expand(mask.shape)[mask]
    sums = torch.zeros(len(lengths), world.num_states, world.num_tokens, dtype=torch.float64)
    sums.view(-1, world.num_tokens).index_add_(0, batch * world.num_states + world.states[at][mask], rows)
    clipped = torch.zeros(len(lengths), dtype=torch.float64).index_add(0, batch, losses.clipped.double())
    return _Gradients(sums, clipped / lengths.sum(1).clamp_min(1))


def _importance(setting: Setting, old: Tensor, sampling: Tensor, lengths: Tensor) -> Tensor | None:
    if setting.correction == "none":
        return None
    level, cap = setting.correction_level, setting.correction_cap
    return importance_weights(old, sampling, lengths, level, setting.correction, cap).weights


def _by_logit(theta: Tensor, slopes: Tensor, states: Tensor, tokens: Tensor) -> Tensor:
    """From slopes (N,) on log-probabilities to (N, V) on the logits of their states: d log p(a) / dz = 1[a] - p."""
    rows = -theta.softmax(-1)[states] * slopes[:, None]
    rows[torch.arange(len(tokens)), tokens] += slopes
    return rows


def _advantages(world: World, setting: Setting, batches: Batches) -> Tensor:
    """(B, P·G, L) of each token; called once for every distinct batch of rewards."""
    B, P, G, _ = batches.parts.shape
    if not isinstance(setting.advantage, AdvantageEstimator):
        return _token_advantages(world, setting.advantage, batches)
    distinct, row_of = batches.parts.flatten(1).unique(dim=0, return_inverse=True)
    parts = distinct.view(len(distinct), *batches.parts.shape[1:])
    rewards = parts.sum(-1).tolist()
    advantages = [
        step_advantages(group_rewards, group_parts, setting.advantage)
        for group_rewards, group_parts in zip(rewards, parts.tolist(), strict=True)
    ]
    per_completion = torch.tensor(advantages, dtype=torch.float64)[row_of].view(B, P * G, 1)
    return per_completion.expand(-1, -1, world.max_length)


def _token_advantages(world: World, function: TokenAdvantages, batches: Batches) -> Tensor:
    """As above, once for every distinct group."""
    rewards = batches.parts.sum(-1)
    groups = torch.cat([batches.prompts.double(), batches.sequences.double(), rewards], -1).flatten(0, 1)
    distinct, row_of = groups.unique(dim=0, return_inverse=True)
    G = batches.prompts.shape[-1]
    table = torch.zeros(len(distinct), G, world.max_length, dtype=torch.float64)
    for row, group in zip(table, distinct, strict=True):
        prompts, sequences, paid = group.view(3, G).tolist()
        for tokens, advantages in zip(row, function(int(prompts[0]), [int(s) for s in sequences], paid), strict=True):
            tokens[: len(advantages)] = advantages
    return table[row_of].view(len(batches.chances), -1, world.max_length)


def _token_weights(world: World, setting: Setting, lengths: Tensor) -> Tensor:
    """(B, P·G, L) weight of every token, with the denominators of its own batch; length 0: left out."""
    distinct, row_of = lengths.unique(dim=0, return_inverse=True)
    table = torch.zeros(*distinct.shape, world.max_length, dtype=torch.float64)
    for row, own in zip(table, distinct, strict=True):
        kept = own[own > 0]
        if len(kept):
            size = BatchSize(len(kept), int(kept.sum()), world.max_length)
            row[torch.arange(world.max_length) < own[:, None]] = token_weights(kept, size, setting.aggregation).double()
    return table[row_of]
