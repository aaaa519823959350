"""From scored groups to groups with advantages: the bridge between verdicts and the pure estimators."""

from collections.abc import Sequence

import numpy as np
import torch

from groupwise.algorithms.advantages import AdvantageEstimator, step_advantages
from groupwise.errors import InvariantError, VerifierError
from groupwise.models.policy import Policy
from groupwise.rollout.steps import step_ends
from groupwise.types import AdvantagedGroup, ScoredGroup, TokenValues


def advantaged(scored: Sequence[ScoredGroup], estimator: AdvantageEstimator, policy: Policy) -> list[AdvantagedGroup]:
    """Advantages of a step's groups; the policy's tokenizer says where steps end."""
    if estimator.reads == "steps":
        return [_by_steps(group, estimator, policy) for group in scored]
    rewards = [group.rewards for group in scored]
    found = step_advantages(rewards, [_parts(group) for group in scored], estimator)
    groups = [_broadcast(group, advantages) for group, advantages in zip(scored, found, strict=True)]
    if estimator.reads == "reward":  # parts are weighed anew, so their order is the estimator's own
        for group in groups:
            _check_order(group)
    return groups


def _broadcast(scored: ScoredGroup, advantages: Sequence[float | None]) -> AdvantagedGroup:
    """A completion's advantage at every token that was sampled."""
    pairs = zip(scored.group.completions, advantages, strict=True)
    arrays = [None if value is None else np.where(one.sampled, value, 0.0) for one, value in pairs]
    return AdvantagedGroup(scored, tuple(arrays))


def _check_order(group: AdvantagedGroup) -> None:
    """Within a group nothing that earned more has the smaller advantage.

    Raises:
        InvariantError: names the problem where something has.
    """
    rewards = group.scored.rewards
    completions = group.scored.group.completions
    values = zip(group.advantages, completions, strict=True)
    first = [None if array is None else float(array[one.sampled][0]) for array, one in values]
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
            f"{scored.group.prompt.problem.id} has any: set verifier.steps = 'equations', "
            "or another advantage"
        )
    completions = [scored.group.completions[i] for i in judged]
    steps = [scored.verdicts[i].steps for i in judged]
    ends = [
        step_ends(policy, scored.group.prompt, completion, [step.end for step in found])
        for completion, found in zip(completions, steps, strict=True)
    ]
    found = estimator.of_steps(
        [torch.tensor([step.reward for step in one], dtype=torch.float64) for one in steps],
        [torch.tensor(one) for one in ends],
        [completion.num_read for completion in completions],
    )
    advantages: list[TokenValues | None] = [None] * len(scored.verdicts)
    for place, values in zip(judged, found, strict=True):
        sampled = scored.group.completions[place].sampled
        advantages[place] = np.where(sampled, values.numpy(), 0.0).astype(np.float32)
    return AdvantagedGroup(scored, tuple(advantages))
