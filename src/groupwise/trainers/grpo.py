"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm. Dr. GRPO, RLOO, REINFORCE, DAPO, GSPO, CISPO and the others are settings of it: a
kind in `[advantage]` or `[loss.policy]`, a name in `loss.aggregation` each (docs/algorithms.md).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groupwise.algorithms.advantages import ADVANTAGES, AdvantageEstimator, GroupMean
from groupwise.models.policy import Policy
from groupwise.models.reward_model import RewardModel
from groupwise.rollout.collect import collect
from groupwise.trainers.advantages import advantaged
from groupwise.trainers.dynamic_sampling import sample_rounds
from groupwise.trainers.report import Clock, StepResult, drawn
from groupwise.trainers.reward_part import load_reward_models, with_reward_model_parts
from groupwise.trainers.rl import BatchConfig, Learner, RlRecipe, load_reference
from groupwise.training.kl_reward import with_kl_part
from groupwise.training.optimizer import Optimizer
from groupwise.training.update import update_policy
from groupwise.types import Problem, ScoredGroup
from groupwise.verifiers import Verifier, check_failures, spot_check
from groupwise.verifiers.overlap import OverlappedScoring


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
        groups = advantaged(scored, recipe.advantage, policy)
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
