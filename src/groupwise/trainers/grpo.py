"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm. Dr. GRPO, RLOO, REINFORCE, DAPO, GSPO, CISPO and the others are settings of it: a
kind in `[advantage]` or `[loss.policy]`, a name in `loss.aggregation` each (docs/algorithms.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from groupwise.algorithms.advantages import ADVANTAGES, AdvantageEstimator, GroupMean, step_advantages
from groupwise.errors import InvariantError, VerifierError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, Clock, sample_and_score
from groupwise.rollout.steps import step_ends
from groupwise.trainers.report import StepResult
from groupwise.trainers.reward_part import load_reward_models
from groupwise.trainers.rl import Learner, reference_of, rl_trainer
from groupwise.trainers.rl_recipe import BatchConfig, RlRecipe
from groupwise.trainers.step_rewards import StepJudge, StepRewardsConfig, check_step_rewards, load_step_judge
from groupwise.training.forward import with_kl_part
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Beside
from groupwise.training.trace import UpdateTrace
from groupwise.training.update import update_policy
from groupwise.types import AdvantagedGroup, Problem, ScoredGroup, TokenValues
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
    step_rewards: StepRewardsConfig = StepRewardsConfig()
    """The process reward model whose scores the advantages `process`, `process_gae` and `process_min` read."""

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
        check_step_rewards(self.step_rewards, self.advantage, self.verifier)
        if self.advantage.reads == "steps" and self.loss.kl_coef and self.loss.kl_in == "reward":
            raise ValueError(
                f"loss.kl_in = 'reward' has no effect with advantage.kind = '{self.advantage.kind}', which reads the "
                "rewards of steps alone; allowed is 'loss'"
            )
        if self.reward_models and self.advantage.reads == "steps" and not self.step_rewards.path:
            raise ValueError(
                f"advantage.kind = '{self.advantage.kind}' reads the rewards of steps alone, so reward_models would "
                "earn nothing; allowed is any other advantage, or step_rewards, whose outcome has their parts"
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
    step_judge: StepJudge | None = None
    """The process reward model, if there is one."""

    @property
    def beside(self) -> Beside | None:
        return self.step_judge.online if self.step_judge else None

    def rewarded(self, scored: Sequence[ScoredGroup], step: int) -> list[ScoredGroup]:
        """The groups with what reward models add, and with the worth of their steps."""
        groups = Learner.rewarded(self, scored, step)
        return self.step_judge(groups) if self.step_judge else groups

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
        trace = UpdateTrace()
        update = update_policy(learner.updater, groups, step, trace)
        learner.publish()
    return StepResult(groups, update, clock.seconds(), rounds.problems, rounds.sampled, trace=trace)


class Rounds:
    """The rounds of sampling of one step: its problems, then others in place of groups without signal.

    Dynamic sampling (DAPO, Yu et al. 2025, arXiv:2503.14476, §3.2). What it costs and bends is logged with every step:
    how many groups were sampled, and the pass rate of all of them beside that of those kept. The kept ones are no fair
    sample of the task: problems near pass rates 0 and 1 are under-weighted.

    rounds = Rounds(problems, spare, max_refills)
    for chosen in rounds:
        rounds.add(sample_and_score(chosen, ...))
    rounds.kept
    """

    def __init__(self, problems: Sequence[Problem], spare: Sequence[Problem], max_refills: int) -> None:
        self._wanted, self._left, self._max_refills = list(problems), list(spare), max_refills
        self.sampled: list[ScoredGroup] = []
        """Everything sampled, in order."""
        self.problems: list[list[str]] = []
        """Problem ids of each round."""

    def __iter__(self) -> Iterator[list[Problem]]:
        chosen = self._wanted
        while chosen:
            self.problems.append([problem.id for problem in chosen])
            yield chosen
            missing = len(self._wanted) - sum(group.has_signal for group in self.sampled)
            may_refill = len(self.problems) <= self._max_refills
            chosen = self._left[: max(missing, 0)] if may_refill else []
            self._left = self._left[len(chosen) :]

    def add(self, scored: Sequence[ScoredGroup]) -> None:
        """Add what a round sampled."""
        self.sampled += scored

    @property
    def kept(self) -> list[ScoredGroup]:
        """The step's groups; without signal only where the bound was reached."""
        by_signal = sorted(self.sampled, key=lambda group: not group.has_signal)  # stable: keeps the order of sampling
        return (by_signal if len(self.problems) > 1 else self.sampled)[: len(self._wanted)]


def advantaged(scored: Sequence[ScoredGroup], estimator: AdvantageEstimator, policy: Policy) -> list[AdvantagedGroup]:
    """Advantages of a step's groups; the policy's tokenizer says where steps end."""
    if estimator.reads == "steps":
        return [_by_steps(group, estimator, policy) for group in scored]
    if estimator.reads == "tokens":
        return [_by_tokens(group, estimator) for group in scored]
    rewards = [group.rewards for group in scored]
    values = step_advantages(rewards, [_parts(group) for group in scored], estimator)
    groups = [_broadcast(group, advantages) for group, advantages in zip(scored, values, strict=True)]
    if estimator.reads == "reward":  # parts get new weights, so their order is the estimator's own
        for group in groups:
            _check_order(group)
    return groups


def _broadcast(scored: ScoredGroup, advantages: Sequence[float | None]) -> AdvantagedGroup:
    """A completion's advantage at every token that was sampled."""
    pairs = zip(scored.group.completions, advantages, strict=True)
    arrays = [None if value is None else np.where(completion.sampled, value, 0.0) for completion, value in pairs]
    return AdvantagedGroup(scored, tuple(arrays))


def _check_order(group: AdvantagedGroup) -> None:
    """Within a group nothing that earned more has the smaller advantage.

    Raises:
        InvariantError: names the problem where something has.
    """
    rewards = group.scored.rewards
    completions = group.scored.group.completions
    values = zip(group.advantages, completions, strict=True)
    first = [None if array is None else float(array[completion.sampled][0]) for array, completion in values]
    pairs = zip(rewards, first, strict=True)
    by_reward = [a for _, a in sorted((r, a) for r, a in pairs if r is not None and a is not None)]
    if by_reward != sorted(by_reward):
        raise InvariantError(
            f"the rewards {rewards} of problem {group.scored.group.prompt.problem.id} became the advantages "
            f"{first}, smaller where more was earned: they are another group's, or have the wrong sign"
        )


def _parts(scored: ScoredGroup) -> list[list[float]]:
    """Reward parts as a table, completions by names; a part that a verdict does not have is 0."""
    names = sorted({name for verdict in scored.verdicts for name in verdict.parts})
    return [[verdict.parts.get(name, 0.0) for name in names] for verdict in scored.verdicts]


def _by_steps(scored: ScoredGroup, estimator: AdvantageEstimator, policy: Policy) -> AdvantagedGroup:
    judged = [i for i, verdict in enumerate(scored.verdicts) if verdict.outcome.judged]
    if judged and not any(scored.verdicts[i].steps for i in judged):
        raise VerifierError(
            f"advantage.kind = '{estimator.kind}' needs the rewards of steps, but no verdict of problem "
            f"{scored.group.prompt.problem.id} has any: set step_rewards.path, verifier.steps = 'equations', or "
            "another advantage"
        )
    completions = [scored.group.completions[i] for i in judged]
    steps = [scored.verdicts[i].steps for i in judged]
    ends = [
        step_ends(policy, scored.group.prompt, completion, [step.end for step in rewarded])
        for completion, rewarded in zip(completions, steps, strict=True)
    ]
    if estimator.needs_decided_ends:
        for i, completion, of_one in zip(judged, completions, ends, strict=True):
            _check_covered(scored, i, of_one, completion.num_read)
    estimates = estimator.of_steps(
        [torch.tensor([step.reward for step in rewarded], dtype=torch.float64) for rewarded in steps],
        [torch.tensor(positions) for positions in ends],
        [completion.num_read for completion in completions],
    )
    return _at_sampled(scored, judged, estimates)


def _check_covered(scored: ScoredGroup, index: int, ends: Sequence[int], length: int) -> None:
    """Steps that a baseline is read at follow each other to the completion's end.

    Raises:
        VerifierError: names the completion whose steps do not.
    """
    if list(ends) != sorted(ends) or ends[-1:] != [length]:
        raise VerifierError(
            f"the steps of completion {index} of problem {scored.group.prompt.problem.id} end at the tokens "
            f"{list(ends)} of {length}: they must follow each other to its end, or what is left out would have no "
            "baseline and bias the gradient"
        )


def _by_tokens(scored: ScoredGroup, estimator: AdvantageEstimator) -> AdvantagedGroup:
    rewards = {i: reward for i, reward in enumerate(scored.rewards) if reward is not None}
    ids = [scored.group.completions[i].token_ids.tolist() for i in rewards]
    return _at_sampled(scored, list(rewards), estimator.of_tokens(list(rewards.values()), ids))


def _at_sampled(scored: ScoredGroup, judged: Sequence[int], estimates: Sequence[torch.Tensor]) -> AdvantagedGroup:
    advantages: list[TokenValues | None] = [None] * len(scored.verdicts)
    for index, values in zip(judged, estimates, strict=True):
        sampled = scored.group.completions[index].sampled
        advantages[index] = np.where(sampled, values.numpy(), 0.0).astype(np.float32)
    return AdvantagedGroup(scored, tuple(advantages))


def grpo_learner(recipe: GrpoRecipe, policy: Policy, verifier: Verifier) -> GrpoLearner:
    """What a GRPO run works with."""
    return GrpoLearner(
        actors=Actors.of(policy, recipe.task.template, verifier, recipe.engine),
        reference=reference_of(recipe, policy),
        reward_models=load_reward_models(recipe.reward_models, recipe.model),
        optimizer=Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps),
        recipe=recipe,
        step_judge=load_step_judge(recipe.step_rewards, recipe.model, policy),
    )


TRAINER = rl_trainer(
    GrpoRecipe,
    grpo_learner,
    trained_beside=lambda recipe: () if recipe.step_rewards.online == "no" else ("process reward model",),
)
