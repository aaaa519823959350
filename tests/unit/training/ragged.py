"""Groups of sampled completions of all lengths, an update of them, and what stands in for the optimizer."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupwise.algorithms.advantages import advantage, step_advantages
from groupwise.models.policy import Policy
from groupwise.randomness import Draws, Purpose
from groupwise.rollout.sample_and_score import Actors, sample_and_score
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks.base import Template
from groupwise.training.config import LossConfig
from groupwise.training.update import CriticLoss, UpdateMetrics, Updater, update_policy
from groupwise.types import AdvantagedGroup, Completion, Outcome, Problem, ScoredGroup, Verdict
from groupwise.verifiers.unjudged import Unjudged

MAX_TOKENS = 10
SIGNAL = [(1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 1.0, 0.0), (1.0, 1.0, 0.5, 0.0)]
Groups = Sequence[AdvantagedGroup]
Rewards = Sequence[Sequence[float | None]]


class Recorder:
    """Stands in for the optimizer: keeps each update's gradient and weights, and may move the weights at random."""

    def __init__(self, policy: Policy, change: float = 0.0) -> None:
        self.policy, self.change = policy, change
        self.gradients: list[dict[str, Tensor]] = []
        self.policies: list[Policy] = []

    def update(self, step: int) -> float:
        named = dict(self.policy.model.named_parameters())
        self.policies.append(self.policy.copy())
        self.gradients.append({n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in named.items()})
        generator = torch.Generator().manual_seed(len(self.policies))
        with torch.no_grad():
            for parameter in named.values():
                parameter += self.change * torch.randn(parameter.shape, generator=generator).to(parameter.device)
        self.policy.model.zero_grad(set_to_none=True)
        return float(sum(g.square().sum() for g in self.gradients[-1].values()) ** 0.5)


def make_groups(
    policy: Policy, rewards: Rewards = SIGNAL, temperature: float = 1.0, begin: str = ""
) -> list[AdvantagedGroup]:
    """Groups with these rewards, None where the verifier failed, and the group's mean as baseline."""
    groups = []
    actors, sampling = Actors.of(policy, Template(), Unjudged()), SamplingConfig(max_tokens=10, temperature=temperature)
    for i, earned in enumerate(rewards):
        problem = Problem(f"p{i}", begin + "?" * (3 * i + 1), "")
        group = sample_and_score(actors, [problem], len(earned), sampling, Draws(0, Purpose.TRAIN))[0].group
        verdicts = (Verdict(Outcome.WRONG, {"r": r}, "") if r is not None else Verdict(Outcome.CRASHED, {}, "")
                    for r in earned)  # fmt: skip
        [advantages] = step_advantages([earned], [[[r] for r in earned]], advantage("group_mean"))
        arrays = (None if a is None else np.full(c.num_read, a)
                  for a, c in zip(advantages, group.completions, strict=True))  # fmt: skip
        groups.append(AdvantagedGroup(ScoredGroup(group, tuple(verdicts)), tuple(arrays)))
    return groups


def taken(group: AdvantagedGroup, order: Sequence[int]) -> AdvantagedGroup:
    """The group with these of its completions, in this order."""
    inner = group.scored.group
    scored = ScoredGroup(
        dataclasses.replace(inner, completions=tuple(inner.completions[i] for i in order)),
        tuple(group.scored.verdicts[i] for i in order),
    )
    return AdvantagedGroup(scored, tuple(group.advantages[i] for i in order))


def run(
    policy: Policy,
    groups: Groups,
    /,
    change: float = 0.0,
    reference: Policy | None = None,
    temperature: float = 1.0,
    critic: CriticLoss | None = None,
    **config: Any,
) -> tuple[UpdateMetrics, Recorder]:
    recorder = Recorder(policy, change)
    updater = Updater(policy, recorder, LossConfig(**config), temperature, MAX_TOKENS, reference, critic)  # type: ignore[arg-type]
    return update_policy(updater, groups, step=0), recorder


def gradient(policy: Policy, groups: Groups, **options: Any) -> dict[str, Tensor]:
    return run(policy, groups, **options)[1].gradients[0]


def judged(groups: Groups) -> list[tuple[tuple[int, ...], Completion, float]]:
    """Prompt, completion and advantage of all that have one."""
    return [
        (group.scored.group.prompt.token_ids, completion, float(advantage[0]))
        for group in groups
        for completion, advantage in zip(group.scored.group.completions, group.advantages, strict=True)
        if advantage is not None
    ]


def pairs_of(groups: Groups) -> list[tuple[tuple[int, ...], list[int]]]:
    return [(prompt, completion.token_ids.tolist()) for prompt, completion, _ in judged(groups)]


def assert_close(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert ours.keys() == theirs.keys()
    assert max(g.abs().max() for g in theirs.values()) > 1e-2  # there is something to compare
    for name in ours:
        torch.testing.assert_close(ours[name].double(), theirs[name].double(), atol=tolerance, rtol=tolerance)
