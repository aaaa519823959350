"""Proximal Policy Optimization with a critic (Schulman et al. 2017, arXiv:1707.06347), as InstructGPT used it for text.

`ppo_step` is the whole algorithm: the same sampling, verdicts and update as GRPO, but a learned value of every token in
place of the group's mean. A token's reward is minus the KL penalty; the last token's has the verdict's reward on top.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from groupwise.algorithms.advantages import STD_EPS, gae
from groupwise.algorithms.values import explained_variance
from groupwise.config import Section
from groupwise.models.critic import Critic
from groupwise.models.policy import Policy, load_policy
from groupwise.models.reward_model import RewardModel
from groupwise.rollout.collect import collect
from groupwise.trainers.report import Clock, StepResult, drawn
from groupwise.trainers.reward_part import load_reward_models, with_reward_model_parts
from groupwise.trainers.rl import BatchConfig, Learner, RlRecipe, load_reference, rl_trainer
from groupwise.training.forward import Arrays, per_token
from groupwise.training.kl_reward import token_penalties
from groupwise.training.loss_config import LossConfig
from groupwise.training.optimizer import Optimizer
from groupwise.training.update import CriticLoss, update_policy
from groupwise.types import Advantage, AdvantagedGroup, CriticView, Problem, ScoredGroup
from groupwise.verifiers import Verifier, check_failures, spot_check
from groupwise.verifiers.overlap import OverlappedScoring


class CriticConfig(Section):
    """The value function."""

    backbone: Literal["own", "shared"] = "own"
    """`own`: a second copy of the starting model (twice the memory, as in InstructGPT). `shared`: one linear layer on
    the policy's hidden states."""
    lr: float = Field(1e-5, ge=0)
    """Peak learning rate of the critic; it follows the policy's schedule (InstructGPT: about the policy's own)."""
    coef: float = Field(0.1, ge=0)
    """Weight of the value loss (InstructGPT: 0.1). With a backbone of its own only clipping sees it."""
    clip: float = Field(0.2, ge=0)
    """How far a value may move from the one at sampling, in units of the reward; 0: any distance."""


class PpoConfig(BatchConfig):
    """The batch and the advantages."""

    group_size: int = Field(4, ge=1)
    """Completions per problem; the critic needs no rivals, so 1 is allowed."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount γ per token; 1 does not favour short answers."""
    lam: float = Field(0.95, ge=0, le=1)
    """λ of generalised advantages (InstructGPT: 0.95; 1: plain returns)."""
    whiten: bool = True
    """Subtract the mean of the step's advantages and divide by their standard deviation, over all tokens."""


class PpoLossConfig(LossConfig):
    """The policy loss, with the defaults of PPO."""

    aggregation: str = "token"
    """How tokens are averaged: `constant`, `token` (PPO) or `sequence`."""
    kl_in: Literal["loss", "reward"] = "reward"
    """`reward`: taken off each token's reward (InstructGPT). `loss`: a term of every token."""
    kl_estimator: str = "k1"
    """`k1` (InstructGPT: in the reward its gradient is the right one), `k2` or `k3`."""
    mini_batches: int = Field(2, ge=1)
    """Optimizer updates per pass: the groups are cut into this many parts."""
    epochs: int = Field(2, ge=1)
    """Passes over the step's groups (InstructGPT: 1; PPO's paper: 3 to 15)."""


class PpoRecipe(RlRecipe):
    """A whole PPO run."""

    algorithm: Literal["ppo"] = "ppo"
    """Which trainer runs this recipe."""
    ppo: PpoConfig = PpoConfig()
    """The batch and the advantages."""
    critic: CriticConfig = CriticConfig()
    """The value function."""
    loss: PpoLossConfig = PpoLossConfig()
    """The policy loss; the KL penalty, if any, stands in each token's reward."""

    @property
    def batch(self) -> BatchConfig:
        return self.ppo

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check()
        return self


def ppo_step(
    step: int,
    problems: Sequence[Problem],
    policy: Policy,
    critic: Critic,
    reference: Policy | None,
    verifier: Verifier,
    optimizer: Optimizer,
    recipe: PpoRecipe,
    reward_models: Mapping[str, RewardModel] = {},
) -> StepResult:
    """One step of PPO: sample, verify, ask the critic, update policy and critic."""
    clock = Clock()
    with OverlappedScoring(verifier, recipe.sampling.max_tokens) as scoring:
        with clock("generate"):
            groups = collect(
                policy, recipe.task.template, problems, recipe.ppo.group_size, recipe.sampling,
                seed=recipe.run.seed, purpose="train", step=step, policy_version=optimizer.updates_done,
                on_group=scoring.submit,
            )  # fmt: skip
        with clock("verify"):  # what is left of it when sampling is done
            scored = scoring.result(groups)
    check_failures(scored, recipe.verifier.max_failure_share)
    spot_check(scored, verifier, recipe.sampling.max_tokens, recipe.run.seed, step)
    with clock("verify"):
        scored = with_reward_model_parts(scored, reward_models, recipe.reward_models, recipe.task.template, step)
    with clock("train"):
        judged = with_critic(scored, policy, critic, reference, recipe)
        update = update_policy(
            policy, optimizer, judged.groups, recipe.loss, step=step, reference=reference,
            temperature=recipe.sampling.temperature, max_tokens=recipe.sampling.max_tokens,
            critic=CriticLoss(critic, recipe.critic.coef, recipe.critic.clip),
        )  # fmt: skip
    ids = [[problem.id for problem in problems]]
    return StepResult(judged.groups, update, clock.seconds(), ids, drawn(scored), judged.explained_variance)


class Judged(NamedTuple):
    """Groups with advantages, and how well the critic predicted their returns."""

    groups: list[AdvantagedGroup]
    explained_variance: float


def with_critic(
    scored: Sequence[ScoredGroup], policy: Policy, critic: Critic, reference: Policy | None, recipe: PpoRecipe
) -> Judged:
    """Token rewards, values, generalised advantages and returns of a step."""
    groups = [one.group for one in scored]
    values = per_token(
        groups,
        lambda packed: critic.values(packed, policy.completion_states(packed)),
        recipe.loss.tokens_per_micro_batch,
        policy.device,
    )
    penalties = None
    if reference is not None and recipe.loss.kl_in == "reward":
        penalties = token_penalties(groups, reference, recipe.loss, recipe.sampling.temperature)
    found = [_advantages(one, values[i], penalties[i] if penalties else None, recipe) for i, one in enumerate(scored)]
    views = [view for group in found for view in group.critic if view is not None]
    variance = explained_variance(
        torch.from_numpy(np.concatenate([view.values for view in views] or [np.zeros(0, np.float32)])),
        torch.from_numpy(np.concatenate([view.returns for view in views] or [np.zeros(0, np.float32)])),
    )
    return Judged(_whitened(found) if recipe.ppo.whiten else found, variance)


def _advantages(scored: ScoredGroup, values: Arrays, penalties: Arrays | None, recipe: PpoRecipe) -> AdvantagedGroup:
    advantages: list[Advantage | None] = []
    views: list[CriticView | None] = []
    for i, reward in enumerate(scored.rewards):
        if reward is None:
            advantages.append(None)
            views.append(None)
            continue
        rewards = -penalties[i] if penalties else np.zeros(len(values[i]), np.float32)
        rewards[-1] += reward
        found = gae(torch.from_numpy(rewards), torch.from_numpy(values[i]), recipe.ppo.gamma, recipe.ppo.lam).numpy()
        advantages.append(found)
        views.append(CriticView(values[i], found + values[i]))
    return AdvantagedGroup(scored, tuple(advantages), tuple(views))


def _whitened(groups: Sequence[AdvantagedGroup]) -> list[AdvantagedGroup]:
    every = np.concatenate([one for group in groups for one in group.advantages if one is not None])
    mean, std = every.mean(), every.std() + STD_EPS
    return [
        AdvantagedGroup(
            group.scored,
            tuple(None if one is None else np.asarray((one - mean) / std, np.float32) for one in group.advantages),
            group.critic,
        )
        for group in groups
    ]


def ppo_learner(recipe: PpoRecipe, policy: Policy) -> Learner:
    """The optimizer, the step and the critic of a PPO run."""
    reference, reward_models = load_reference(recipe), load_reward_models(recipe.reward_models, recipe.model)
    critic = Critic(policy, load_policy(recipe.model) if recipe.critic.backbone == "own" else None)
    optimizer = Optimizer(policy.model, recipe.optimizer, recipe.run.num_steps, critic, recipe.critic.lr)

    def step(number: int, problems: Sequence[Problem], spare: Sequence[Problem], verifier: Verifier) -> StepResult:
        return ppo_step(number, problems, policy, critic, reference, verifier, optimizer, recipe, reward_models)

    return Learner(optimizer, step, critic)


TRAINER = rl_trainer(
    PpoRecipe, ppo_learner, trained_beside=lambda recipe: ("critic",) if recipe.critic.backbone == "own" else ()
)
