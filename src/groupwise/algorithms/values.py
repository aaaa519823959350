"""The critic's loss and how well it predicts. Inputs are (N,) over completion tokens."""

import torch
from torch import Tensor


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, clip: float) -> Tensor:
    """Lₜ = ½ max((Vₜ - Rₜ)², (clip(Vₜ, V_oldₜ ± ε) - Rₜ)²): value clipping (Engstrom et al. 2020).

    `clip` is ε in units of the reward; 0 switches clipping off. Returns (N,), to be minimised.

    >>> clipped_value_loss(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([1.0]), clip=0.2)
    tensor([0.3200])
    """
    plain = (values - returns).square()
    if not clip:
        return plain / 2
    near = torch.minimum(torch.maximum(values, old_values - clip), old_values + clip)
    return torch.maximum(plain, (near - returns).square()) / 2


def explained_variance(values: Tensor, returns: Tensor) -> float | None:
    """1 - Var(R - V) / Var(R): 1 is a perfect critic, 0 knows only the mean; None when all returns are equal."""
    if (returns == returns[:1]).all():  # the variance of equal numbers is not 0 but rounding, in fp32 often
        return None
    return float(1 - (returns - values).var(correction=0) / returns.var(correction=0))
