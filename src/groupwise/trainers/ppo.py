"""Proximal Policy Optimization with a critic (Schulman et al. 2017, arXiv:1707.06347), as InstructGPT used it for text.

A learned value of every token stands in place of the group's mean. A token's reward is minus the KL penalty; the last
one has the verdict's reward on top.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from groupwise.algorithms.advantages import STD_EPS, gae
from groupwise.algorithms.objective import explained_variance
from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.models.policy import Critic, Policy, start_policy
from groupwise.models.sharded import shard_critic
from groupwise.randomness import Draws, Purpose
from groupwise.ranks.group import RANKS
from groupwise.rollout.sample_and_score import Clock, sample_and_score
from groupwise.trainers.grpo import turn_rewards
from groupwise.trainers.report import StepResult
from groupwise.trainers.rl import Learner, rl_trainer
from groupwise.trainers.rl_recipe import BatchConfig, RlRecipe
from groupwise.training.config import WITH_KL, Aggregation, KlEstimator, LossConfig
from groupwise.training.optimizer import Optimizer
from groupwise.training.tokens import Arrays, UpdateTrace, per_token, token_penalties
from groupwise.training.update import CriticLoss, update_policy
from groupwise.types import AdvantagedGroup, Completion, CriticView, Problem, ScoredGroup, TokenValues
from groupwise.verifiers import Verifier


class CriticConfig(Section):
    """The value function."""

    backbone: Literal["own", "shared"] = "own"
    """`own`: a second copy of the starting model (twice the memory, as in InstructGPT); with `[lora]`, adapters of its
    own on the policy's weights. `shared`: one linear layer on the policy's hidden states."""
    lr: float = Field(1e-5, ge=0)
    """Peak learning rate of the critic; it follows the policy's schedule (InstructGPT: about the policy's own)."""
    coef: float = Field(0.1, ge=0)
    """Weight of the value loss (InstructGPT: 0.1). With a backbone of its own only clipping sees it."""
    clip: float = Field(0.2, ge=0)
    """Largest move of a value from the one at sampling, in units of the reward; 0: any distance."""


class PpoConfig(BatchConfig):
    """The batch and the advantages."""

    group_size: int = Field(4, ge=1)
    """Completions per problem; the critic needs no rivals, so 1 is allowed."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount γ per token, or per turn; 1 does not favour short answers."""
    unit: Literal["token", "turn"] = "token"
    """Step of γ and λ: a `token`, or a `turn` of an episode, whose value is that of the state in which it was
    taken. Rewards of turns are earned at their ends."""
    lam: float = Field(0.95, ge=0, le=1)
    """λ of generalised advantages (InstructGPT: 0.95; 1: plain returns)."""
    whiten: bool = True
    """Subtract the mean of the step's advantages and divide by their standard deviation, over all tokens."""


class PpoLossConfig(LossConfig):
    """The policy loss, with the defaults of PPO."""

    aggregation: Aggregation = "token"
    """Average over tokens: `constant`, `token` (PPO) or `sequence`."""
    kl_in: Annotated[Literal["loss", "reward"], WITH_KL] = "reward"
    """`reward`: taken off each token's reward (InstructGPT). `loss`: a term of every token."""
    kl_estimator: Annotated[KlEstimator, WITH_KL] = "k1"
    """`k1` (InstructGPT: in the reward its gradient is the right one), `k2` or `k3`."""
    mini_batches: int = Field(2, ge=1)
    """Optimizer updates per pass: the groups are cut into this many parts."""
    epochs: int = Field(2, ge=1)
    """Passes over the step's groups (InstructGPT: 1; PPO's paper: 3 to 15)."""


class PpoRecipe(RlRecipe):
    """A whole PPO run."""

    algorithm: Literal["ppo"] = "ppo"
    """The trainer of this recipe."""
    ppo: PpoConfig = PpoConfig()
    """The batch and the advantages."""
    critic: CriticConfig = CriticConfig()
    """The value function."""
    loss: PpoLossConfig = PpoLossConfig()
    """The policy loss; the KL penalty, if any, is part of each token's reward."""

    @property
    def batch(self) -> BatchConfig:
        return self.ppo


@dataclass(frozen=True, slots=True)
class PpoLearner(Learner):
    """The parts of a PPO run."""

    recipe: PpoRecipe
    critic: Critic

    @property
    def critic_loss(self) -> CriticLoss:
        return CriticLoss(self.critic, self.recipe.critic.coef, self.recipe.critic.clip)

    def step(self, step: int, problems: Sequence[Problem], spare: Sequence[Problem] = ()) -> StepResult:
        return ppo_step(self, step, problems)


def ppo_step(learner: PpoLearner, step: int, problems: Sequence[Problem]) -> StepResult:
    """Do one step of PPO: sample, judge, ask the critic, update policy and critic."""
    recipe, clock = learner.recipe, Clock()
    draws = Draws(recipe.run.seed, Purpose.TRAIN, step)
    scored = sample_and_score(learner.actors, problems, recipe.ppo.group_size, recipe.sampling, draws, clock)
    with clock("verify"):
        scored = learner.rewarded(scored, step)
    with clock("train"):
        groups, variance = with_critic(learner, scored)
        trace = UpdateTrace()
        update = update_policy(learner.updater, groups, step, trace)
        learner.publish()
    ids = [[problem.id for problem in problems]]
    return StepResult(groups, update, clock.seconds(), ids, scored, trace, variance)


def with_critic(learner: PpoLearner, scored: Sequence[ScoredGroup]) -> tuple[list[AdvantagedGroup], float | None]:
    """Compute values, advantages and returns, and the share of the variance of the returns that the values explain."""
    recipe, policy, critic = learner.recipe, learner.policy, learner.critic
    groups = [group.group for group in scored]
    values = per_token(
        groups,
        lambda packed: critic.values(packed, policy.completion_states(packed) if critic.shares_backbone else None),
        recipe.loss.tokens_per_micro_batch,
        policy.device,
    )
    penalties = None
    if learner.reference is not None and recipe.loss.kl_in == "reward":
        penalties = token_penalties(groups, learner.reference, recipe.loss, recipe.sampling.temperature)
    advantaged = [
        _advantages(group, values[i], penalties[i] if penalties else None, recipe.ppo) for i, group in enumerate(scored)
    ]
    views = [
        (view, completion.sampled)
        for group in advantaged
        for view, completion in zip(group.critic, group.scored.group.completions, strict=True)
        if view is not None
    ]
    nothing = [np.zeros(0, np.float32)]
    all_values = np.concatenate([view.values[sampled] for view, sampled in views] or nothing)
    all_returns = np.concatenate([view.returns[sampled] for view, sampled in views] or nothing)
    variance = explained_variance(torch.from_numpy(all_values), torch.from_numpy(all_returns))
    return _whitened(advantaged) if recipe.ppo.whiten else advantaged, variance


def _advantages(scored: ScoredGroup, values: Arrays, penalties: Arrays | None, config: PpoConfig) -> AdvantagedGroup:
    advantages, views = list[TokenValues | None](), list[CriticView | None]()
    for i, (completion, reward) in enumerate(zip(scored.group.completions, scored.rewards, strict=True)):
        if reward is None:
            advantages.append(None)
            views.append(None)
            continue
        sampled = completion.sampled
        states = values[i][sampled]
        rewards = -penalties[i][sampled] if penalties else np.zeros(len(states), np.float32)
        ends = [len(states) - 1]
        if completion.turns:
            ends = [int(np.count_nonzero(sampled[: turn.end])) - 1 for turn in completion.turns]
        rewards[ends] += turn_rewards(completion, reward).numpy() if completion.turns else reward
        if config.unit == "turn":  # the value before a turn's first token is that of the state it was taken in
            starts = [0, *(end + 1 for end in ends[:-1])]
            rewards, before = np.add.reduceat(rewards, starts), states[starts]
            of_turns = gae(torch.from_numpy(rewards), torch.from_numpy(before), config.gamma, config.lam).numpy()
            estimates = np.repeat(of_turns, np.diff([*starts, len(states)]))
            returns = np.repeat(of_turns + before, np.diff([*starts, len(states)]))
        else:
            estimates = gae(torch.from_numpy(rewards), torch.from_numpy(states), config.gamma, config.lam).numpy()
            returns = estimates + states
        advantages.append(completion.spread(estimates))
        views.append(CriticView(values[i], completion.spread(returns)))
    return AdvantagedGroup(scored, tuple(advantages), tuple(views))


def _whitened(groups: Sequence[AdvantagedGroup]) -> list[AdvantagedGroup]:
    def whitened(values: TokenValues | None, completion: Completion) -> TokenValues | None:
        return None if values is None else np.where(completion.sampled, (values - mean) / std, 0).astype(np.float32)

    pairs = [pair for group in groups for pair in zip(group.advantages, group.scored.group.completions, strict=True)]
    judged = [values[completion.sampled] for values, completion in pairs if values is not None]
    pooled = np.concatenate(judged or [np.zeros(1)])  # a step in which nothing was judged teaches nothing
    mean, std = pooled.mean(), pooled.std() + STD_EPS
    return [
        replace(group, advantages=tuple(map(whitened, group.advantages, group.scored.group.completions)))
        for group in groups
    ]


def ppo_learner(recipe: PpoRecipe, policy: Policy, verifier: Verifier) -> PpoLearner:
    """Build the parts of a PPO run."""
    backbone = None
    if recipe.critic.backbone == "own":  # it starts as the policy did; weights in a checkpoint are loaded later
        if recipe.lora and RANKS.size > 1:
            raise ConfigError(
                "critic.backbone = 'own' with [lora] is for one process, where both read the same weights; allowed on "
                "several ranks is 'shared'"
            )
        backbone = policy.twin() if recipe.lora else start_policy(recipe.model, None, recipe.run.seed, in_rows=True)
    critic = Critic(policy, backbone)
    shard_critic(critic, backbone)
    rates, num_steps = recipe.optimizer, recipe.run.num_steps
    optimizer = Optimizer(policy.trainable(), rates, num_steps, critic.trainable(), recipe.critic.lr)
    return PpoLearner.of(recipe, policy, verifier, optimizer, critic=critic)


TRAINER = rl_trainer(
    PpoRecipe, ppo_learner, trained_beside=lambda recipe: ("critic",) if recipe.critic.backbone == "own" else ()
)
