"""Group Relative Policy Optimization (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300) and its kin.

`grpo_step` is the whole algorithm; Dr. GRPO, RLOO, DAPO, GSPO and others are settings of it (docs/algorithms.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from groupwise.algorithms.advantages import ADVANTAGES, AdvantageEstimator, GroupMean, checked, step_advantages
from groupwise.algorithms.step_advantages import until_ends
from groupwise.errors import InvariantError, VerifierError
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Clock, sample_and_score
from groupwise.rollout.steps import step_ends
from groupwise.tasks.episodes import environments
from groupwise.trainers.report import StepResult
from groupwise.trainers.rl import Learner, rl_trainer
from groupwise.trainers.rl_recipe import BatchConfig, RlRecipe
from groupwise.trainers.step_rewards import StepJudge, StepRewardsConfig, check_step_rewards, load_step_judge
from groupwise.training.optimizer import Optimizer
from groupwise.training.session import Beside
from groupwise.training.tokens import UpdateTrace, with_kl_part
from groupwise.training.update import update_policy
from groupwise.types import AdvantagedGroup, Completion, Problem, ScoredGroup, TokenValues
from groupwise.verifiers import Verifier


class GrpoConfig(BatchConfig):
    """The batch."""

    refill_rounds: int = Field(0, ge=0)
    """Dynamic sampling (DAPO): groups without signal are replaced by other problems at most this many times; 0: not."""


class GrpoRecipe(RlRecipe):
    """A whole GRPO run."""

    algorithm: Literal["grpo"] = "grpo"
    """The trainer of this recipe."""
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
        played = environments(self.task)
        if played and self.advantage.reads == "steps":
            raise ValueError(
                f"advantage.kind = '{self.advantage.kind}' compares steps that the policy decides to end, and where "
                "turns are such steps its gradient is biased; allowed with an environment are turn_return, equal_state "
                "and all that read the whole reward"
            )
        if self.advantage.reads == "turns" and not played:
            raise ValueError(
                f"advantage.kind = '{self.advantage.kind}' needs turns, and the task has no environment; allowed is "
                "any other advantage, or task.kind = 'episodes'"
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
    """The parts of a GRPO run."""

    recipe: GrpoRecipe
    step_judge: StepJudge | None = None

    @property
    def beside(self) -> Beside | None:
        return self.step_judge.online if self.step_judge else None

    def rewarded(self, scored: Sequence[ScoredGroup], step: int) -> list[ScoredGroup]:
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

    def sample(chosen: Sequence[Problem]) -> list[ScoredGroup]:
        scored = sample_and_score(learner.actors, chosen, recipe.grpo.group_size, recipe.sampling, draws, clock)
        with clock("verify"):
            return learner.rewarded(scored, step)

    rounds = refilled(sample, problems, spare, recipe.grpo.refill_rounds)
    with clock("train"):
        scored = with_kl_part(rounds.kept, learner.reference, recipe.loss, recipe.sampling.temperature)
        groups = advantaged(scored, recipe.advantage, learner.policy)
        trace = UpdateTrace()
        update = update_policy(learner.updater, groups, step, trace)
        learner.publish()
    return StepResult(groups, update, clock.seconds(), rounds.problems, rounds.sampled, trace)


class Refilled(NamedTuple):
    """The groups of one step's rounds of sampling."""

    kept: list[ScoredGroup]
    """As many as the step has problems; without signal only where the bound on refills was reached."""
    sampled: list[ScoredGroup]
    problems: list[list[str]]


def refilled(
    sample: Callable[[Sequence[Problem]], list[ScoredGroup]],
    problems: Sequence[Problem],
    spare: Sequence[Problem],
    max_refills: int,
) -> Refilled:
    """Sample a step's problems, then spare ones in place of groups without signal.

    Dynamic sampling (DAPO, Yu et al. 2025, arXiv:2503.14476, §3.2). The kept groups are no fair sample of the task:
    problems near pass rates 0 and 1 are under-weighted, so the pass rate of all is logged beside that of those kept.
    """
    sampled, rounds = list[ScoredGroup](), list[list[str]]()
    chosen = list(problems)
    while chosen:
        rounds.append([problem.id for problem in chosen])
        sampled += sample(chosen)
        missing = len(problems) - sum(group.has_signal for group in sampled)
        count = max(missing, 0) if len(rounds) <= max_refills else 0
        chosen, spare = list(spare[:count]), spare[count:]
    if len(rounds) == 1:
        return Refilled(sampled, sampled, rounds)
    by_signal = sorted(sampled, key=lambda group: not group.has_signal)  # stable: keeps the order of sampling
    return Refilled(by_signal[: len(problems)], sampled, rounds)


def advantaged(scored: Sequence[ScoredGroup], estimator: AdvantageEstimator, policy: Policy) -> list[AdvantagedGroup]:
    """Compute the advantages of a step's groups; the policy's tokenizer says where steps end.

    Raises:
        VerifierError: the estimator needs rewards of steps that the verdicts do not have.
        InvariantError: advantages are not in the order of the rewards.
    """
    if estimator.reads == "steps":
        return [_by_steps(group, estimator, policy) for group in scored]
    if estimator.reads == "tokens":
        groups = []
        for group in scored:
            rewards = {i: reward for i, reward in enumerate(group.rewards) if reward is not None}
            ids = [group.group.completions[i].token_ids.tolist() for i in rewards]
            estimates = estimator.of_tokens(list(rewards.values()), ids)
            groups.append(_at_sampled(group, list(rewards), checked(estimator, estimates, list(map(len, ids)))))
        return groups
    if estimator.reads == "turns":
        return [_by_turns(group, estimator) for group in scored]
    parts = []
    for group in scored:  # a table, completions by names; a part that a verdict does not have is 0
        names = sorted({name for verdict in group.verdicts for name in verdict.parts})
        parts.append([[verdict.parts.get(name, 0.0) for name in names] for verdict in group.verdicts])
    values = step_advantages([group.rewards for group in scored], parts, estimator)
    groups = []
    for group, advantages in zip(scored, values, strict=True):
        pairs = zip(group.group.completions, advantages, strict=True)
        arrays = [None if value is None else np.where(completion.sampled, value, 0.0) for completion, value in pairs]
        groups.append(AdvantagedGroup(group, tuple(arrays)))
    if estimator.reads == "reward":  # parts get new weights, so their order is the estimator's own
        for made in groups:
            earned, each = made.scored.rewards, zip(made.advantages, made.scored.group.completions, strict=True)
            first = [None if array is None else float(array[completion.sampled][0]) for array, completion in each]
            known = [(r, a) for r, a in zip(earned, first, strict=True) if r is not None and a is not None]
            by_reward = [advantage for _, advantage in sorted(known)]
            if by_reward != sorted(by_reward):
                raise InvariantError(
                    f"the rewards {earned} of problem {made.scored.group.prompt.problem.id} became the advantages "
                    f"{first}, smaller where more was earned: they are another group's, or have the wrong sign"
                )
    return groups


def turn_rewards(completion: Completion, total: float) -> torch.Tensor:
    """(K,) the rewards of an episode's turns; what it earned beside them (style, a KL part) is the last one's."""
    rewards = torch.tensor([turn.reward or 0.0 for turn in completion.turns], dtype=torch.float64)
    rewards[-1] += total - sum(turn.reward or 0.0 for turn in completion.turns)
    return rewards


def _by_turns(scored: ScoredGroup, estimator: AdvantageEstimator) -> AdvantagedGroup:
    rewards = {i: reward for i, reward in enumerate(scored.rewards) if reward is not None}
    completions = [scored.group.completions[i] for i in rewards]
    if any(not completion.turns for completion in completions):
        raise VerifierError(
            f"advantage.kind = '{estimator.kind}' needs turns, and problem {scored.group.prompt.problem.id} is played "
            "in no environment: set another advantage, or a task of the kind 'episodes'"
        )
    counts = [len(completion.turns) for completion in completions]
    values = estimator.of_turns(
        [turn_rewards(completion, reward) for completion, reward in zip(completions, rewards.values(), strict=True)],
        [[turn.state for turn in completion.turns] for completion in completions],
    )
    estimates = [
        until_ends(of_turns, torch.tensor([turn.end for turn in completion.turns]), completion.num_read)
        for completion, of_turns in zip(completions, checked(estimator, values, counts), strict=True)
    ]
    return _at_sampled(scored, list(rewards), estimates)


def _by_steps(scored: ScoredGroup, estimator: AdvantageEstimator, policy: Policy) -> AdvantagedGroup:
    judged = [i for i, verdict in enumerate(scored.verdicts) if verdict.outcome.judged]
    problem = scored.group.prompt.problem.id
    if judged and not any(scored.verdicts[i].steps for i in judged):
        raise VerifierError(
            f"advantage.kind = '{estimator.kind}' needs the rewards of steps, but no verdict of problem {problem} has "
            "any: set step_rewards.path, verifier.steps = 'equations', or another advantage"
        )
    rewards, ends, lengths = [], [], []
    for i in judged:
        completion, steps = scored.group.completions[i], scored.verdicts[i].steps
        positions = step_ends(policy, scored.group.prompt, completion, [step.end for step in steps])
        if estimator.needs_decided_ends and (
            list(positions) != sorted(positions) or positions[-1:] != [completion.num_read]
        ):
            raise VerifierError(
                f"the steps of completion {i} of problem {problem} end at the tokens {list(positions)} of "
                f"{completion.num_read}: they must follow each other to its end, or what is left out would have no "
                "baseline and bias the gradient"
            )
        rewards.append(torch.tensor([step.reward for step in steps], dtype=torch.float64))
        ends.append(torch.tensor(positions))
        lengths.append(completion.num_read)
    return _at_sampled(scored, judged, checked(estimator, estimator.of_steps(rewards, ends, lengths), lengths))


def _at_sampled(scored: ScoredGroup, judged: Sequence[int], estimates: Sequence[torch.Tensor]) -> AdvantagedGroup:
    advantages: list[TokenValues | None] = [None] * len(scored.verdicts)
    for index, values in zip(judged, estimates, strict=True):
        sampled = scored.group.completions[index].sampled
        advantages[index] = np.where(sampled, values.numpy(), 0.0).astype(np.float32)
    return AdvantagedGroup(scored, tuple(advantages))


def grpo_learner(recipe: GrpoRecipe, policy: Policy, verifier: Verifier) -> GrpoLearner:
    """Build the parts of a GRPO run."""
    optimizer = Optimizer(policy.trainable(), recipe.optimizer, recipe.run.num_steps)
    judge = load_step_judge(recipe.step_rewards, recipe.model, policy, bool(recipe.task.template.chat))
    return GrpoLearner.of(recipe, policy, verifier, optimizer, step_judge=judge)


TRAINER = rl_trainer(
    GrpoRecipe,
    grpo_learner,
    trained_beside=lambda recipe: () if recipe.step_rewards.online == "no" else ("process reward model",),
)
