"""From rewards to advantages: how much better than its group a completion was.

Every estimator maps the rewards (G,) of one group to advantages (G,). Compare them side by side; the table is at the
bottom. Where the verifier failed the reward is None and the completion is no part of the group's statistics.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

STD_EPS = 1e-4
"""Added to the standard deviation. A group of two different rewards 0 and 1 has std >= 0.06 up to G = 256."""


def group_mean(rewards: Tensor) -> Tensor:
    """Âᵢ = rᵢ - mean(r): Dr. GRPO (Liu et al. 2025, arXiv:2503.20783, eq. 2).

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
    return (rewards - rewards.mean()) / (rewards.std(correction=0) + STD_EPS)


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "group_mean": group_mean,
    "group_normalised": group_normalised,
}


def group_advantages(rewards: Sequence[float | None], estimator: str) -> tuple[float | None, ...]:
    """Advantages of one group; None stays None."""
    judged = torch.tensor([reward for reward in rewards if reward is not None], dtype=torch.float64)
    values = iter(ADVANTAGES[estimator](judged).tolist() if len(judged) else [])
    return tuple(None if reward is None else next(values) for reward in rewards)
