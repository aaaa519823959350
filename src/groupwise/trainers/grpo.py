"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm. Dr. GRPO, RLOO, REINFORCE, DAPO, GSPO, CISPO and the others are settings of it: a
kind in `[advantage]` or `[loss.policy]`, a name in `loss.aggregation` each (docs/algorithms.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.algorithms.advantages import ADVANTAGES, AdvantageEstimator, GroupMean
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.clock import Clock
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.trainers.advantages import advantaged
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
    """The batch."""

    refill_rounds: int = Field(0, ge=0)
    """Dynamic sampling (DAPO): groups without signal are replaced by other problems at most this many times; 0: not."""


class GrpoRecipe(RlRecipe):
    """A whole GRPO run."""

    algorithm: Literal["grpo"] = "grpo"
    """Which trainer runs this recipe."""
    grpo: GrpoConfig = GrpoConfig()
    """The batch."""
    advantage: Annotated[AdvantageEstimator, ADVANTAGES] = GroupMean(kind="group_mean")
    """From rewards to advantages: `group_mean` (Dr. GRPO), `group_normalised` (GRPO), `leave_one_out` (RLOO) and others
    (docs/algorithms.md)."""

    @property
    def batch(self) -> BatchConfig:
        return self.grpo

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check()
        if self.grpo.group_size < 2 and self.advantage.needs_rivals:
            alone = [kind for kind in ADVANTAGES.table if not ADVANTAGES.find(kind).needs_rivals]
            raise ValueError(
                f"grpo.group_size = {self.grpo.group_size} leaves '{self.advantage.kind}' nothing to compare with; at "
                f"least 2 is allowed (1 with {', '.join(alone)})"
            )
        if self.reward_models and self.advantage.reads == "steps":
            raise ValueError(
                f"advantage.kind = '{self.advantage.kind}' reads the rewards of steps alone, so reward_models would "
                "earn nothing; allowed is any other advantage"
            )
        for name, config in self.reward_models.items():
            if config.weight and self.advantage.refuses_negative:
                raise ValueError(
                    f"advantage.kind = '{self.advantage.kind}' needs rewards that are not negative, but a low score of "
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
        groups = advantaged(scored, recipe.advantage, learner.policy)
        update = update_policy(learner.updater, groups, step)
        learner.publish()
    return StepResult(groups, update, clock.seconds(), rounds.problems, drawn(rounds.drawn))


def grpo_learner(recipe: GrpoRecipe, policy: Policy, verifier: Verifier) -> GrpoLearner:
    """What a GRPO run works with."""
    return GrpoLearner(
        actors=Actors.of(policy, recipe.task.template, verifier, recipe.engine),
        reference=load_reference(recipe),
        reward_models=load_reward_models(recipe.reward_models, recipe.model),
        optimizer=Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps),
        recipe=recipe,
    )


TRAINER = rl_trainer(GrpoRecipe, grpo_learner)
