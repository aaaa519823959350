"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm. Dr. GRPO, RLOO, REINFORCE, DAPO, GSPO, CISPO and the others are settings of it: a
name in `grpo.advantage`, `loss.policy_loss` or `loss.aggregation` each (docs/algorithms.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.algorithms.advantages import ADVANTAGES
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.clock import Clock
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.trainers.advantages import PROCESS, advantaged
from groupwise.trainers.dynamic_sampling import Rounds
from groupwise.trainers.report import StepResult, drawn
from groupwise.trainers.reward_part import load_reward_models
from groupwise.trainers.rl import BatchConfig, Learner, RlRecipe, load_reference, rl_trainer
from groupwise.training.kl_reward import with_kl_part
from groupwise.training.optimizer import Optimizer
from groupwise.training.update import update_policy
from groupwise.types import Problem
from groupwise.verifiers import Verifier


class GrpoConfig(BatchConfig):
    """The batch and the baseline."""

    advantage: str = "group_mean"
    """`group_mean` (Dr. GRPO), `group_normalised` (GRPO), `leave_one_out` (RLOO), `batch_mean` (REINFORCE), `batch_std`
    (Lite PPO), `batch_normalised` (REINFORCE++), `divided_by_mean` (MaxRL), `parts_normalised` (GDPO), `none`,
    `group_normalised_sample`, or `process` (the steps' rewards, DeepSeekMath §4.1.3)."""
    refill_rounds: int = Field(0, ge=0)
    """Dynamic sampling (DAPO): groups without signal are replaced by other problems at most this many times; 0: not."""

    @field_validator("advantage")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in (*ADVANTAGES, PROCESS):
            raise ValueError(f"allowed are {', '.join((*ADVANTAGES, PROCESS))}")
        return name

    @model_validator(mode="after")
    def _has_rivals(self) -> Self:
        if self.group_size < 2 and self.advantage not in ("none", "batch_mean", "batch_normalised"):
            raise ValueError(
                f"group_size = {self.group_size} leaves '{self.advantage}' nothing to compare with; at least 2 is "
                "allowed (1 with none, batch_mean and batch_normalised)"
            )
        return self


class GrpoRecipe(RlRecipe):
    """A whole GRPO run."""

    algorithm: Literal["grpo"] = "grpo"
    """Which trainer runs this recipe."""
    grpo: GrpoConfig = GrpoConfig()
    """The batch and the baseline."""

    @property
    def batch(self) -> BatchConfig:
        return self.grpo

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check()
        if self.reward_models and self.grpo.advantage == PROCESS:
            raise ValueError(
                f"grpo.advantage = '{PROCESS}' reads the rewards of steps alone, so reward_models would earn nothing; "
                "allowed is any other advantage"
            )
        for name, config in self.reward_models.items():
            if config.weight and self.grpo.advantage == "divided_by_mean":
                raise ValueError(
                    "grpo.advantage = 'divided_by_mean' needs rewards that are not negative, but a low score of "
                    f"reward_models.{name} costs up to weight · clip = {config.weight * config.clip:g}; allowed is "
                    "weight = 0, or any other advantage"
                )
        return self


@dataclass(frozen=True, slots=True)
class GrpoLearner(Learner):
    """What a GRPO run works with."""

    recipe: GrpoRecipe

    def step(self, step: int, problems: Sequence[Problem], spare: Sequence[Problem] = ()) -> StepResult:
        return grpo_step(self, step, problems, spare)


def grpo_step(
    learner: GrpoLearner, step: int, problems: Sequence[Problem], spare: Sequence[Problem] = ()
) -> StepResult:
    """One step of GRPO: sample groups, judge, compare within the group, update."""
    recipe, clock = learner.recipe, Clock()
    draws = Draws(recipe.run.seed, Purpose.TRAIN, step)
    rounds = Rounds(problems, spare, recipe.grpo.refill_rounds)
    for chosen in rounds:  # once, unless groups without signal are replaced
        scored = sample_and_score(learner.actors, chosen, recipe.grpo.group_size, recipe.sampling, draws, clock)
        with clock("verify"):
            rounds.add(learner.rewarded(scored, step))
    with clock("train"):
        scored = with_kl_part(rounds.kept, learner.reference, recipe.loss, recipe.sampling.temperature)
        groups = advantaged(scored, recipe.grpo.advantage, learner.policy)
        update = update_policy(learner.updater, groups, step)
        learner.publish()
    return StepResult(groups, update, clock.seconds(), rounds.problems, drawn(rounds.drawn))


def grpo_learner(recipe: GrpoRecipe, policy: Policy, verifier: Verifier) -> GrpoLearner:
    """What a GRPO run works with."""
    return GrpoLearner(
        actors=Actors.of(policy, recipe.task.template, verifier, recipe.engine),
        reference=load_reference(recipe),
        reward_models=load_reward_models(recipe.reward_models, recipe.model),
        optimizer=Optimizer(policy.model, recipe.optimizer, recipe.run.num_steps),
        recipe=recipe,
    )


TRAINER = rl_trainer(GrpoRecipe, grpo_learner)
