"""The expected gradient of an estimator, its bias, variance and direction, by going through every possible batch.

What is measured is the code that trains: the functions of `algorithms` are called on the enumerated batches; only the
sum over batches, weighted with their probability, is done here.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement, product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from groupwise.algorithms.advantages import step_advantages
from groupwise.algorithms.aggregation import BatchSize, token_weights
from groupwise.algorithms.importance import importance_weights
from groupwise.algorithms.objective import Objective, Tokens, token_loss
from groupwise.oracle.world import World

MAX_BATCHES = 200_000


@dataclass(frozen=True)
class Setting:
    """How a batch becomes a gradient."""

    group_size: int = 4
    advantage: str = "group_mean"
    objective: Objective = field(default_factory=Objective)
    aggregation: str = "constant"
    truncated: Literal["keep", "mask"] = "keep"
    only_signal: bool = False
    """Groups of equal rewards are drawn again (dynamic sampling)."""
    false_positive: float = 0.0
    """Chance that the verifier pays 1 for what deserves 0."""
    false_negative: float = 0.0
    """Chance that the verifier pays 0 for what deserves 1."""
    correction: Literal["none", "truncate", "mask"] = "none"
    correction_level: Literal["token", "sequence"] = "token"
    correction_cap: float = 2.0


class Policies(NamedTuple):
    """Logits (K, V) of the policies at work; on-policy they are all the same."""

    current: Tensor
    """Whose gradient is taken."""
    old: Tensor
    """The denominator of the ratio."""
    sampler: Tensor
    """Who drew the samples."""

    @classmethod
    def on_policy(cls, theta: Tensor) -> "Policies":
        return cls(theta, theta, theta)


@dataclass(frozen=True)
class Estimated:
    """An estimator against the truth."""

    mean: Tensor
    """(K, V) expected gradient, times the nominal factor that makes an unbiased one equal ∇J."""
    truth: Tensor
    """(K, V) ∇J."""
    variance: float
    """Trace of the covariance of one batch's gradient, in units of |∇J|²."""

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


class _Outcome(NamedTuple):
    """What may become of one sample: a sequence and the reward that the verifier gives it."""

    sequence: int
    reward: float
    probability: float


def estimate(world: World, policies: Policies, setting: Setting) -> Estimated:
    """Go through all batches of one group per prompt.

    Raises:
        ValueError: there are too many.
    """
    groups = [_groups(_outcomes(world, policies, setting, prompt), setting) for prompt in range(world.num_prompts)]
    count = math.prod(len(one) for one in groups)
    if count > MAX_BATCHES:
        raise ValueError(f"{count} batches are too many to go through; at most {MAX_BATCHES} are allowed")
    batches = list(product(*groups))
    gradients = _gradients(world, policies, setting, [[outcomes for outcomes, _ in batch] for batch in batches])
    weights = torch.tensor([math.prod(p for _, p in batch) for batch in batches], dtype=torch.float64)
    gradients = gradients * _nominal(world, policies.current, setting)
    mean = (weights[:, None, None] * gradients).sum(0)
    truth = world.gradient(policies.current)
    spread = (weights * (gradients - mean).square().sum((1, 2))).sum()
    return Estimated(mean, truth, float(spread / truth.square().sum()))


def _outcomes(world: World, policies: Policies, setting: Setting, prompt: int) -> list[_Outcome]:
    found = []
    probabilities = world.probabilities(policies.sampler)[prompt].tolist()
    for number, (chance, reward) in enumerate(zip(probabilities, world.rewards[prompt].tolist(), strict=True)):
        wrong = setting.false_negative if reward > 0 else setting.false_positive
        found.append(_Outcome(number, reward, chance * (1 - wrong)))
        if wrong:
            found.append(_Outcome(number, 0.0 if reward > 0 else 1.0, chance * wrong))
    return found


Group = tuple[_Outcome, ...]


def _groups(outcomes: Sequence[_Outcome], setting: Setting) -> list[tuple[Group, float]]:
    """Every group of G outcomes, order aside, with its probability."""
    found = []
    for group in combinations_with_replacement(outcomes, setting.group_size):
        if setting.only_signal and len({outcome.reward for outcome in group}) == 1:
            continue
        orders = math.factorial(setting.group_size)
        for times in Counter(outcome[:2] for outcome in group).values():
            orders //= math.factorial(times)
        found.append((group, orders * math.prod(outcome.probability for outcome in group)))
    total = sum(chance for _, chance in found)
    return [(group, chance / total) for group, chance in found]


def _nominal(world: World, theta: Tensor, setting: Setting) -> float:
    """What undoes the aggregation's unit: tokens per completion, so that a sum over tokens is comparable with ∇J."""
    if setting.aggregation == "constant":
        return float(world.max_length)
    return float((world.probabilities(theta) * world.lengths).sum(-1).mean())


def _gradients(world: World, policies: Policies, setting: Setting, batches: Sequence[Sequence[Group]]) -> Tensor:
    """(batches, K, V) ascent direction of each batch, all computed at once by the code that trains."""
    rows = [
        (number, prompt, outcome.sequence, advantage)
        for number, batch in enumerate(batches)
        for prompt, outcomes, advantages in zip(range(len(batch)), batch, _advantages(batch, setting), strict=True)
        for outcome, advantage in zip(outcomes, advantages, strict=True)
        if not (setting.truncated == "mask" and world.truncated[outcome.sequence])
    ]
    batch_of, prompts, sequences = (torch.tensor([row[i] for row in rows], dtype=torch.long) for i in range(3))
    lengths, mask = world.lengths[sequences], world.mask[sequences]
    states, tokens = world.states[prompts, sequences][mask], world.tokens[sequences][mask]

    def flat(theta: Tensor) -> Tensor:
        return world.token_logprobs(theta)[prompts, sequences][mask]

    logprobs = flat(policies.current).detach().requires_grad_()
    old, sampling = flat(policies.old), flat(policies.sampler)
    importance = None
    if setting.correction != "none":
        importance = importance_weights(
            old, sampling, lengths, setting.correction_level, setting.correction, setting.correction_cap
        ).weights
    advantages = torch.tensor([row[3] for row in rows], dtype=torch.float64).repeat_interleave(lengths)
    known = Tokens(logprobs, torch.zeros_like(logprobs), old, advantages, lengths, importance=importance)
    loss = token_loss(known, setting.objective).loss
    weights = _weights(world, setting, batch_of, lengths, len(batches))
    slopes = -torch.autograd.grad((weights * loss).sum(), logprobs)[0]  # ascent: minus the loss's slope
    probabilities = policies.current.softmax(-1)
    by_logit = -probabilities[states] * slopes[:, None]
    by_logit[torch.arange(len(tokens)), tokens] += slopes
    where = batch_of.repeat_interleave(lengths) * world.num_states + states
    total = torch.zeros(len(batches) * world.num_states, world.num_tokens, dtype=torch.float64)
    return total.index_add(0, where, by_logit).view(len(batches), world.num_states, world.num_tokens)


def _advantages(batch: Sequence[Group], setting: Setting) -> list[tuple[float | None, ...]]:
    rewards = [[outcome.reward for outcome in group] for group in batch]
    return step_advantages(rewards, [[[reward] for reward in group] for group in rewards], setting.advantage)


def _weights(world: World, setting: Setting, batch_of: Tensor, lengths: Tensor, num_batches: int) -> Tensor:
    """Weight of every token, with the denominators of its own batch."""
    completions = torch.bincount(batch_of, minlength=num_batches)
    tokens = torch.zeros(num_batches, dtype=torch.long).index_add(0, batch_of, lengths)
    found = []
    bounds = torch.cumsum(completions, 0).tolist()
    for start, end, total in zip([0, *bounds[:-1]], bounds, tokens.tolist(), strict=True):
        if end > start:
            size = BatchSize(end - start, total, world.max_length)
            found.append(token_weights(lengths[start:end], size, setting.aggregation).double())
    return torch.cat(found)
