"""Estimators of KL(π ‖ π_ref) from samples of π. Inputs and outputs are (N,) over completion tokens."""

import torch
from torch import Tensor


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k3ₜ = r - log r - 1 with r = π_ref / π: the estimator in GRPO's loss (arXiv:2402.03300, eq. 4).

    Never negative. For samples of π its value is unbiased; its gradient is not that of KL(π ‖ π_ref) but, on-policy,
    that of KL(π_ref ‖ π) (Schulman 2020, "Approximating KL divergence").

    >>> k3(torch.tensor([-1.0]), torch.tensor([-1.0]))
    tensor([0.])
    """
    log_ratio = ref_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio
