"""From rewards to advantages: how much better than its rivals a completion was.

Every estimator is a section of a recipe, `[advantage] kind = "group_mean"`. It maps the rewards of a step's groups to
one advantage per completion; process supervision and GAE give one per token. To add one, write its class here and its
line in the table; your own is `kind = "my_advantage.py:Mine"`.

Where the verifier failed the reward is None and the completion is no part of any statistics. A group whose rewards are
all equal gets exact zeros from every estimator that compares within groups.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from groupwise.config.kinds import Kinds, KindSection
from groupwise.errors import ConfigError

STD_EPS = 1e-4
"""Added to standard deviations. A group of two different rewards 0 and 1 has std >= 0.06 up to G = 256."""


class GroupRewards(NamedTuple):
    """Rewards of one group's judged completions."""

    total: Tensor  # (G,) the reward of each completion
    parts: Tensor  # (G, R) its parts, which sum to it


class AdvantageEstimator(KindSection):
    """An estimator and its dials. One that looks at one group at a time needs `within` alone."""

    needs_rivals: ClassVar[bool] = True
    """True where completions of a problem are compared with each other, so that one alone teaches nothing."""
    reads: ClassVar[Literal["reward", "parts", "steps", "tokens", "turns"]] = "reward"
    """`reward`: the completion's, and what earned more never gets less; `parts`: each part of it on its own; `steps`:
    the rewards of its steps, by `of_steps`; `tokens`: the reward and the tokens, by `of_tokens`; `turns`: the rewards
    and the states of an episode's turns, by `of_turns`."""
    needs_decided_ends: ClassVar[bool] = False
    """True where it is biased unless steps cover a completion to its end, and end where the text before says so."""
    refuses_negative: ClassVar[bool] = False
    """True where a negative reward is an error."""

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        """Map all groups of a step to their advantages, (G,) each."""
        return [_or_zeros(self, group.total) for group in groups]

    def within(self, rewards: Tensor) -> Tensor:
        """Map the rewards of one group, (G,), to its advantages; not called where all rewards are equal."""
        raise self._lacks("within")

    def of_steps(
        self, step_rewards: Sequence[Tensor], step_ends: Sequence[Tensor], lengths: Sequence[int]
    ) -> list[Tensor]:
        """Return advantages of the tokens of one group's completions, (T_i,) each.

        Args:
            step_rewards: (K_i,) per completion.
            step_ends: (K_i,) number of tokens up to and with the step's last one, increasing, at most the length.
            lengths: tokens T_i of each completion.
        """
        raise self._lacks("of_steps")

    def of_tokens(self, rewards: Sequence[float], token_ids: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return advantages of the tokens of one group's completions, (T_i,) each, from rewards and token ids."""
        raise self._lacks("of_tokens")

    def of_turns(self, rewards: Sequence[Tensor], states: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return advantages of the turns of one group's episodes, (K_i,) each.

        Args:
            rewards: (K_i,) of each episode's turns.
            states: key of the state in which each turn was taken; empty: unknown.
        """
        raise self._lacks("of_turns")

    def _lacks(self, method: str) -> ConfigError:
        return ConfigError(f"advantage.kind = {self.kind!r} reads the {self.reads}, and has no method {method}")


def _or_zeros(estimator: AdvantageEstimator, rewards: Tensor) -> Tensor:
    """Exact zeros where all rewards are equal, which rounding of their mean would spoil."""
    return estimator.within(rewards) if (rewards != rewards[:1]).any() else torch.zeros_like(rewards)


class GroupMean(AdvantageEstimator):
    """Âᵢ = rᵢ - mean(r): Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, eq. 2).

    Keeps the direction of the policy gradient; shrinks it to (G-1)/G, because rᵢ is part of its own baseline.

    >>> GroupMean(kind="group_mean").within(torch.tensor([1.0, 0.0, 0.0, 1.0]))
    tensor([ 0.5000, -0.5000, -0.5000,  0.5000])
    """

    def within(self, rewards: Tensor) -> Tensor:
        return rewards - rewards.mean()


class GroupNormalised(GroupMean):
    """Âᵢ = (rᵢ - mean(r)) / std(r), population std: GRPO (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300, §4.1.2).

    Dividing by std re-weights prompts: hard and easy ones count more than those of medium difficulty.

    >>> GroupNormalised(kind="group_normalised").within(torch.tensor([1.0, 0.0, 0.0, 1.0])).round(decimals=3)
    tensor([ 1., -1., -1.,  1.])
    """

    def within(self, rewards: Tensor) -> Tensor:
        return super().within(rewards) / (rewards.std(correction=0) + STD_EPS)


class GroupNormalisedSample(GroupMean):
    """Âᵢ = (rᵢ - mean(r)) / std(r), sample std (divisor G-1), as TRL and verl compute it. Needs G >= 2."""

    def within(self, rewards: Tensor) -> Tensor:
        return super().within(rewards) / (rewards.std(correction=1) + STD_EPS)


class LeaveOneOut(GroupMean):
    """Âᵢ = rᵢ - mean of the others: RLOO (Kool et al. 2019; Ahmadian et al. 2024, arXiv:2402.14740, eq. 7).

    Unbiased: the baseline does not hold rᵢ. It is G/(G-1) times `group_mean`.

    >>> LeaveOneOut(kind="leave_one_out").within(torch.tensor([1.0, 0.0, 0.0]))
    tensor([ 1.0000, -0.5000, -0.5000])
    """

    def within(self, rewards: Tensor) -> Tensor:
        G = len(rewards)
        return super().within(rewards) * (G / (G - 1)) if G > 1 else torch.zeros_like(rewards)


class DividedByMean(GroupMean):
    """Âᵢ = (rᵢ - mean(r)) / mean(r): MaxRL (2026, arXiv:2602.02710), towards maximum likelihood E[log p].

    Weights hard prompts most: with one success of G its advantage is G - 1, the others' is -1. Negative rewards are
    refused: the mean may then be 0 or nearly so although there is a signal.

    >>> DividedByMean(kind="divided_by_mean").within(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([ 3., -1., -1., -1.])
    """

    refuses_negative = True

    def within(self, rewards: Tensor) -> Tensor:
        if (rewards < 0).any():
            raise ValueError(
                f"dividing by the mean reward needs rewards that are not negative, got {rewards.min():.4g}"
            )
        return super().within(rewards) / rewards.mean() if rewards.any() else torch.zeros_like(rewards)


class NoBaseline(AdvantageEstimator):
    """Âᵢ = rᵢ: plain REINFORCE (Williams 1992). Unbiased; its variance grows with the mean reward."""

    needs_rivals = False

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        return [group.total for group in groups]


class BatchMean(AdvantageEstimator):
    """Âᵢ = rᵢ - mean over the step: REINFORCE with the batch's mean as baseline.

    Shrunk to (B-1)/B for B completions; does not take out how hard each prompt is.
    """

    needs_rivals = False

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        mean = _all(groups).mean()
        return [group.total - mean for group in groups]


class BatchNormalised(BatchMean):
    """Âᵢ = (rᵢ - batch mean) / batch std: REINFORCE++ (Hu 2025, arXiv:2501.03262, eq. 6)."""

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        std = _all(groups).std(correction=0)
        return [centred / (std + STD_EPS) for centred in super().__call__(groups)]


class BatchStd(GroupMean):
    """Âᵢ = (rᵢ - group mean) / batch std: Lite PPO (arXiv:2508.08221, §4.1), near REINFORCE++ with group baseline.

    One scale for the whole step, so prompts are not re-weighted against each other.
    """

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        std = _all(groups).std(correction=0)
        return [centred / (std + STD_EPS) for centred in super().__call__(groups)]


class PartsNormalised(GroupNormalised):
    """Normalise each reward part within its group, sum, then normalise over the step: GDPO (2026, arXiv:2601.05242).

    Every part counts the same: normalising takes its weight away (but not the weight's sign).
    """

    reads = "parts"

    def __call__(self, groups: Sequence[GroupRewards]) -> list[Tensor]:
        sums = [sum((_or_zeros(self, part) for part in group.parts.T), group.total * 0) for group in groups]
        std = torch.cat(sums).std(correction=0)
        return [total / (std + STD_EPS) for total in sums]  # their mean over the step is 0; rounding would spoil zeros


def _all(groups: Sequence[GroupRewards]) -> Tensor:
    return torch.cat([group.total for group in groups])


def checked(estimator: AdvantageEstimator, given: Sequence[Tensor], lengths: Sequence[int]) -> list[Tensor]:
    """Return what an estimator gives; raises ConfigError unless it is finite numbers, as many as lengths say."""
    tensors = [torch.as_tensor(each).detach() for each in given]
    shapes, allowed = [tuple(each.shape) for each in tensors], [(length,) for length in lengths]
    if shapes != allowed or not all(torch.isfinite(each).all() for each in tensors):
        found = f"the shapes {shapes}" if shapes != allowed else "numbers that are not finite"
        raise ConfigError(f"advantage.kind = {estimator.kind!r} gave {found}; finite ones of {allowed} are allowed")
    return tensors


ADVANTAGES = Kinds(
    "advantage",
    {
        "none": f"{__name__}:NoBaseline",
        "batch_mean": f"{__name__}:BatchMean",
        "batch_normalised": f"{__name__}:BatchNormalised",
        "batch_std": f"{__name__}:BatchStd",
        "group_mean": f"{__name__}:GroupMean",
        "group_normalised": f"{__name__}:GroupNormalised",
        "group_normalised_sample": f"{__name__}:GroupNormalisedSample",
        "leave_one_out": f"{__name__}:LeaveOneOut",
        "divided_by_mean": f"{__name__}:DividedByMean",
        "parts_normalised": f"{__name__}:PartsNormalised",
        "process": "groupwise.algorithms.step_advantages:Process",
        "process_gae": "groupwise.algorithms.step_advantages:ProcessGae",
        "process_min": "groupwise.algorithms.step_advantages:ProcessMin",
        "group_tree": "groupwise.algorithms.step_advantages:GroupTree",
        "turn_return": "groupwise.algorithms.step_advantages:TurnReturn",
        "equal_state": "groupwise.algorithms.step_advantages:EqualState",
    },
    default="group_mean",
)


def advantage(kind: str, **dials: float) -> AdvantageEstimator:
    """Return an estimator by its kind."""
    estimator: AdvantageEstimator = ADVANTAGES.read({"kind": kind, **dials}, base=AdvantageEstimator)
    return estimator


def step_advantages(
    rewards: Sequence[Sequence[float | None]],
    parts: Sequence[Sequence[Sequence[float]]],
    estimator: AdvantageEstimator,
) -> list[tuple[float | None, ...]]:
    """Return the advantages of all completions of a step, by group; None stays None.

    Args:
        rewards: of each group's completions, None where the verifier failed.
        parts: the parts of each reward; not read at a None.
        estimator: one that reads rewards or their parts.
    """
    judged = [[i for i, reward in enumerate(group) if reward is not None] for group in rewards]
    numbers = [number for number, indices in enumerate(judged) if indices]
    groups = [
        GroupRewards(
            torch.tensor([rewards[number][i] for i in judged[number]], dtype=torch.float64),
            torch.tensor([list(parts[number][i]) for i in judged[number]], dtype=torch.float64),
        )
        for number in numbers
    ]
    results: list[list[float | None]] = [[None] * len(group) for group in rewards]
    given = checked(estimator, estimator(groups), [len(group.total) for group in groups]) if groups else []
    for number, advantages in zip(numbers, given, strict=True):
        for index, advantage in zip(judged[number], advantages.tolist(), strict=True):
            results[number][index] = advantage
    return [tuple(group) for group in results]


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
