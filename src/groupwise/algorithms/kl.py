"""Estimators of KL(π ‖ π_ref) from samples of π, token by token. Inputs and outputs are (N,) over completion tokens.

Schulman 2020, "Approximating KL divergence". With r = π_ref / π at the sampled token, each docstring says what is
unbiased when the tokens were drawn from π: the value, the gradient (when the term is in the loss), or neither.
"Of the token" means given the text before it: no term in a loss accounts for how a token changes the divergence of
later ones; a penalty in the reward does. The oracle (`groupwise oracle`) shows all of this in numbers.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k1 = -log r. Value: unbiased, may be negative. Gradient in the loss: useless, its expectation is 0.

    In the reward it is the right one: the policy gradient of -k1 is that of -KL(π ‖ π_ref), whole sequence.
    """
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k2 = ½ (log r)². Value: biased. Gradient in the loss: unbiased for KL(π ‖ π_ref) of the token."""
    return (logprobs - ref_logprobs).square() / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """k3 = r - log r - 1: the estimator in GRPO's loss (arXiv:2402.03300, eq. 4).

    Value: unbiased and never negative. Gradient in the loss: not that of KL(π ‖ π_ref) but, on-policy, that of the
    other direction, KL(π_ref ‖ π) of the token.

    >>> k3(torch.tensor([-1.0]), torch.tensor([-1.0]))
    tensor([0.])
    """
    log_ratio = ref_logprobs - logprobs
    return torch.expm1(log_ratio) - log_ratio


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def importance_corrected(kl: Tensor, logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """ρ · k with the gradient through ρ = π / π_old too: for tokens drawn from π_old (DeepSeek-V3.2, arXiv:2512.02556).

    k1 and k3: value and gradient are unbiased for KL(π ‖ π_ref) of the token, on-policy (where ρ is 1 but its gradient
    is not 0) and off-policy.
    """
    return (logprobs - old_logprobs).exp() * kl
