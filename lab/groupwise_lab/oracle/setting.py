"""The setting of an enumeration: how a batch is drawn and judged, and how it becomes a gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from groupwise.algorithms.advantages import AdvantageEstimator, GroupMean
from groupwise.algorithms.policy_losses import ClippedRatio, PolicyLoss

_GROUP_MEAN, _CLIPPED_RATIO = GroupMean(kind="group_mean"), ClippedRatio(kind="clipped_ratio")
Correction = Literal["none", "truncate", "mask"]
Level = Literal["token", "sequence"]
TokenAdvantages = Callable[[int, Sequence[int], Sequence[float]], list[Tensor]]
"""A group's prompt, sequences and rewards -> one advantage per token of each sequence, (T,)."""


@dataclass(frozen=True)
class Setting:
    """An estimator, and the circumstances it works under."""

    group_size: int = 4
    advantage: AdvantageEstimator | TokenAdvantages = _GROUP_MEAN
    """One that reads rewards or their parts, or what gives each token its own."""
    policy_loss: PolicyLoss = _CLIPPED_RATIO
    aggregation: str = "constant"
    truncated: Literal["keep", "mask"] = "keep"
    dead_groups: Literal["keep", "again", "other"] = "keep"
    """Treatment of a group of equal rewards: it stays; the same prompt is sampled again; or a group of another
    prompt takes its place (dynamic sampling from a large pool in which every prompt is as frequent)."""
    false_positive: float = 0.0
    """Chance that the verifier pays 1 for what deserves 0."""
    false_negative: float = 0.0
    """Chance that the verifier pays 0 for what deserves more."""
    correction: Correction = "none"
    correction_level: Level = "token"
    correction_cap: float = 2.0


class Policies(NamedTuple):
    """Logits (K, V) of the policies at work; on-policy they are all the same."""

    current: Tensor
    """Whose gradient is taken."""
    old: Tensor
    """The denominator of the ratio."""
    sampler: Tensor
    """Policy that drew the samples."""

    @classmethod
    def on_policy(cls, theta: Tensor) -> "Policies":
        return cls(theta, theta, theta)
