"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm. Dr. GRPO, RLOO, REINFORCE, DAPO, GSPO, CISPO and the others are settings of it: a
name in `grpo.advantage`, `loss.policy_loss` or `loss.aggregation` each (docs/algorithms.md).
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from groupwise.algorithms.advantages import ADVANTAGES
from groupwise.models.policy import Policy
from groupwise.models.reward_model import RewardModel
from groupwise.rollout.collect import collect
from groupwise.trainers.advantages import PROCESS, advantaged
from groupwise.trainers.dynamic_sampling import sample_rounds
from groupwise.trainers.report import Clock, StepResult, drawn
from groupwise.trainers.reward_part import load_reward_models, with_reward_model_parts
from groupwise.trainers.rl import BatchConfig, Learner, RlRecipe, load_reference, rl_trainer
from groupwise.training.kl_reward import with_kl_part
from groupwise.training.optimizer import Optimizer
from groupwise.training.update import update_policy
from groupwise.types import Problem, ScoredGroup
from groupwise.verifiers import Verifier, check_failures, spot_check
from groupwise.verifiers.overlap import OverlappedScoring


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


def grpo_step(
    step: int,
    problems: Sequence[Problem],
    policy: Policy,
    reference: Policy | None,
    verifier: Verifier,
    optimizer: Optimizer,
    recipe: GrpoRecipe,
    spare: Sequence[Problem] = (),
    reward_models: Mapping[str, RewardModel] = {},
) -> StepResult:
    """One step of GRPO: sample groups, verify, compare within the group, update."""
    clock = Clock()

    def sample(chosen: Sequence[Problem]) -> list[ScoredGroup]:
        with OverlappedScoring(verifier, recipe.sampling.max_tokens) as scoring:
            with clock("generate"):
                groups = collect(
                    policy, recipe.task.template, chosen, recipe.grpo.group_size, recipe.sampling,
                    seed=recipe.run.seed, purpose="train", step=step, policy_version=optimizer.updates_done,
                    on_group=scoring.submit,
                )  # fmt: skip
            with clock("verify"):  # what is left of it when sampling is done
                scored = scoring.result(groups)
        check_failures(scored, recipe.verifier.max_failure_share)
        spot_check(scored, verifier, recipe.sampling.max_tokens, recipe.run.seed, step)
        with clock("verify"):
            return with_reward_model_parts(scored, reward_models, recipe.reward_models, recipe.task.template, step)

    rounds = sample_rounds(sample, problems, spare, recipe.grpo.refill_rounds)
    with clock("train"):
        scored = with_kl_part(rounds.kept, reference, recipe.loss, recipe.sampling.temperature)
        groups = advantaged(scored, recipe.grpo.advantage, policy)
        update = update_policy(
            policy, optimizer, groups, recipe.loss, step=step, reference=reference,
            temperature=recipe.sampling.temperature, max_tokens=recipe.sampling.max_tokens,
        )  # fmt: skip
    return StepResult(groups, update, clock.seconds(), rounds.problems, drawn(rounds.drawn))


def grpo_learner(recipe: GrpoRecipe, policy: Policy) -> Learner:
    """The optimizer and the step of a GRPO run."""
    reference, reward_models = load_reference(recipe), load_reward_models(recipe.reward_models, recipe.model)
    optimizer = Optimizer(policy.model, recipe.optimizer, recipe.run.num_steps)

    def step(number: int, problems: Sequence[Problem], spare: Sequence[Problem], verifier: Verifier) -> StepResult:
        return grpo_step(number, problems, policy, reference, verifier, optimizer, recipe, spare, reward_models)

    return Learner(optimizer, step)


TRAINER = rl_trainer(GrpoRecipe, grpo_learner)
