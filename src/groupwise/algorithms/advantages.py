"""From rewards to advantages: how much better than its rivals a completion was.

Every estimator of the table at the bottom maps the rewards of a step's groups to one advantage per completion; process
supervision and GAE give one per token. Where the verifier failed the reward is None and the completion is no part of
any statistics. A group whose rewards are all equal gets exact zeros from every estimator that compares within groups.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

STD_EPS = 1e-4
"""Added to standard deviations. A group of two different rewards 0 and 1 has std >= 0.06 up to G = 256."""


class GroupRewards(NamedTuple):
    """Rewards of one group's judged completions."""

    total: Tensor
    """(G,) the reward of each completion."""
    parts: Tensor
    """(G, R) its parts, which sum to it."""


Estimator = Callable[[Sequence[GroupRewards]], list[Tensor]]
"""All groups of a step to their advantages, (G,) each."""


def group_mean(rewards: Tensor) -> Tensor:
    """Âᵢ = rᵢ - mean(r): Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, eq. 2).

    Keeps the direction of the policy gradient; shrinks it to (G-1)/G, because rᵢ is part of its own baseline.

    >>> group_mean(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor([ 0.5000, -0.5000, -0.5000,  0.5000])
    """
    return rewards - rewards.mean()


def group_normalised(rewards: Tensor) -> Tensor:
    """Âᵢ = (rᵢ - mean(r)) / std(r), population std: GRPO (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300, §4.1.2).

    Dividing by std re-weights prompts: hard and easy ones count more than those of medium difficulty.

    >>> group_normalised(torch.tensor([1.0, 0.0, 0.0, 1.0])).round(decimals=3)
    tensor([ 1., -1., -1.,  1.])
    """
    return group_mean(rewards) / (rewards.std(correction=0) + STD_EPS)


def group_normalised_sample(rewards: Tensor) -> Tensor:
    """As `group_normalised` with the sample std (divisor G-1), as TRL and verl compute it. Needs G >= 2."""
    return group_mean(rewards) / (rewards.std(correction=1) + STD_EPS)


def leave_one_out(rewards: Tensor) -> Tensor:
    """Âᵢ = rᵢ - mean of the others: RLOO (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, eq. 7).

    Unbiased: the baseline does not hold rᵢ. It is G/(G-1) times `group_mean`.

    >>> leave_one_out(torch.tensor([1.0, 0.0, 0.0]))
    tensor([ 1.0000, -0.5000, -0.5000])
    """
    G = len(rewards)
    return group_mean(rewards) * (G / (G - 1)) if G > 1 else torch.zeros_like(rewards)


def divided_by_mean(rewards: Tensor) -> Tensor:
    """Âᵢ = (rᵢ - mean(r)) / mean(r): MaxRL (2026, arXiv:2602.02710), towards maximum likelihood E[log p].

    Weights hard prompts most: with one success of G its advantage is G - 1, the others' is -1.

    Raises:
        ValueError: a reward is negative, so that the mean may be 0 or nearly so although there is a signal.

    >>> divided_by_mean(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([ 3., -1., -1., -1.])
    """
    if (rewards < 0).any():
        raise ValueError(f"dividing by the mean reward needs rewards that are not negative, got {rewards.min():.4g}")
    return group_mean(rewards) / rewards.mean() if rewards.any() else torch.zeros_like(rewards)


def each_group(formula: Callable[[Tensor], Tensor]) -> Estimator:
    """An estimator that looks at one group at a time."""
    return lambda groups: [_or_zeros(formula, group.total) for group in groups]


def _or_zeros(formula: Callable[[Tensor], Tensor], rewards: Tensor) -> Tensor:
    """Exact zeros where all rewards are equal, which rounding of their mean would spoil."""
    return formula(rewards) if (rewards != rewards[:1]).any() else torch.zeros_like(rewards)


def no_baseline(groups: Sequence[GroupRewards]) -> list[Tensor]:
    """Âᵢ = rᵢ: plain REINFORCE (Williams 1992). Unbiased; its variance grows with the mean reward."""
    return [group.total for group in groups]


def batch_mean(groups: Sequence[GroupRewards]) -> list[Tensor]:
    """Âᵢ = rᵢ - mean over the step: REINFORCE with the batch's mean as baseline.

    Shrunk to (B-1)/B for B completions; does not take out how hard each prompt is.
    """
    mean = _all(groups).mean()
    return [group.total - mean for group in groups]


def batch_normalised(groups: Sequence[GroupRewards]) -> list[Tensor]:
    """Âᵢ = (rᵢ - batch mean) / batch std: REINFORCE++ (Hu 2025, arXiv:2501.03262, eq. 6)."""
    std = _all(groups).std(correction=0)
    return [centred / (std + STD_EPS) for centred in batch_mean(groups)]


def batch_std(groups: Sequence[GroupRewards]) -> list[Tensor]:
    """Âᵢ = (rᵢ - group mean) / batch std: Lite PPO (arXiv:2508.08221, §4.1), near REINFORCE++ with group baseline.

    One scale for the whole step, so prompts are not re-weighted against each other.
    """
    std = _all(groups).std(correction=0)
    return [centred / (std + STD_EPS) for centred in each_group(group_mean)(groups)]


def parts_normalised(groups: Sequence[GroupRewards]) -> list[Tensor]:
    """Normalise each reward part within its group, sum, then normalise over the step: GDPO (2026, arXiv:2601.05242).

    Every part counts the same: normalising takes its weight away (but not the weight's sign).
    """
    sums = [sum((_or_zeros(group_normalised, part) for part in group.parts.T), group.total * 0) for group in groups]
    std = torch.cat(sums).std(correction=0)
    return [one / (std + STD_EPS) for one in sums]  # their mean over the step is 0; rounding of it would spoil zeros


def _all(groups: Sequence[GroupRewards]) -> Tensor:
    return torch.cat([group.total for group in groups])


ADVANTAGES: dict[str, Estimator] = {
    "none": no_baseline,
    "batch_mean": batch_mean,
    "batch_normalised": batch_normalised,
    "batch_std": batch_std,
    "group_mean": each_group(group_mean),
    "group_normalised": each_group(group_normalised),
    "group_normalised_sample": each_group(group_normalised_sample),
    "leave_one_out": each_group(leave_one_out),
    "divided_by_mean": each_group(divided_by_mean),
    "parts_normalised": parts_normalised,
}


def step_advantages(
    rewards: Sequence[Sequence[float | None]], parts: Sequence[Sequence[Sequence[float]]], estimator: str
) -> list[tuple[float | None, ...]]:
    """Advantages of all completions of a step, by group; None stays None.

    Args:
        rewards: of each group's completions, None where the verifier failed.
        parts: the parts of each reward; what stands at a None is not read.
        estimator: a name in ADVANTAGES.
    """
    judged = [[i for i, reward in enumerate(group) if reward is not None] for group in rewards]
    kept = [number for number, places in enumerate(judged) if places]
    groups = [_group_rewards(rewards[number], parts[number], judged[number]) for number in kept]
    found: list[list[float | None]] = [[None] * len(group) for group in rewards]
    for number, advantages in zip(kept, ADVANTAGES[estimator](groups) if groups else [], strict=True):
        for place, advantage in zip(judged[number], advantages.tolist(), strict=True):
            found[number][place] = advantage
    return [tuple(group) for group in found]


def _group_rewards(
    rewards: Sequence[float | None], parts: Sequence[Sequence[float]], judged: list[int]
) -> GroupRewards:
    total = torch.tensor([rewards[i] for i in judged], dtype=torch.float64)
    return GroupRewards(total, torch.tensor([list(parts[i]) for i in judged], dtype=torch.float64))


def process_supervision(
    step_rewards: Sequence[Tensor], step_ends: Sequence[Tensor], lengths: Sequence[int]
) -> list[Tensor]:
    """Âᵢₜ = Σ of the normalised rewards of the steps from the token's own on: DeepSeekMath §4.1.3.

    All step rewards of the group are normalised together: r̃ = (r - mean(R)) / std(R), population std.

    Args:
        step_rewards: (K_i,) per completion of one group.
        step_ends: (K_i,) number of tokens up to and with the step's last one, increasing, at most the length.
        lengths: tokens T_i of each completion; tokens after the last step's end have advantage 0.

    >>> process_supervision([torch.tensor([1.0, 0.0])], [torch.tensor([1, 3])], [4])[0].round(decimals=3)
    tensor([ 0., -1., -1.,  0.])
    """
    every = torch.cat(list(step_rewards))
    if not len(every) or (every == every[0]).all():
        return [torch.zeros(length, dtype=every.dtype) for length in lengths]
    mean, std = every.mean(), every.std(correction=0) + STD_EPS
    advantages = []
    for rewards, ends, length in zip(step_rewards, step_ends, lengths, strict=True):
        counts = torch.arange(length)[:, None] < ends[None, :]  # token t belongs to a step that ends after it
        advantages.append((counts * ((rewards - mean) / std)).sum(-1))
    return advantages


def gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """Âₜ = Σₗ (γλ)ˡ δₜ₊ₗ with δₜ = rₜ + γ Vₜ₊₁ - Vₜ: GAE (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    Args:
        rewards: (T,) of one completion's tokens.
        values: (T,) the critic's value of the state before each token; after the last one it is 0.
        gamma: discount; 1 is usual for one answer.
        lam: λ; 1 gives returns minus values (no bias), 0 the one-step error (least variance).

    >>> gae(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]), gamma=1.0, lam=1.0)
    tensor([0.5000, 0.5000])
    """
    after = torch.cat([values[1:], values.new_zeros(1)])
    errors = rewards + gamma * after - values
    advantages, running = torch.empty_like(errors), errors.new_zeros(())
    for t in range(len(errors) - 1, -1, -1):
        running = errors[t] + gamma * lam * running
        advantages[t] = running
    return advantages
