"""The clipped ratio: all cases by hand, the paper's formula as a slow loop, and finite differences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.algorithms.policy_losses import clipped_ratio

LOW, HIGH = 0.2, 0.3


def one(ratio: float, advantage: float) -> tuple[float, float, bool]:
    """Loss of one token, its derivative by the log-probability, and whether the clip holds."""
    logprobs = torch.tensor([math.log(ratio) - 1], requires_grad=True)
    out = clipped_ratio(logprobs, torch.tensor([-1.0]), torch.tensor([advantage]), LOW, HIGH)
    out.loss.sum().backward()
    assert out.ratio.item() == pytest.approx(ratio)
    return out.loss.item(), logprobs.grad.item(), bool(out.clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.5, 2.0, -2.6, 0.0, True),  # good and already likelier: -1.3 * 2, no further push
        (1.5, -2.0, 3.0, 3.0, False),  # bad and likelier: pushed back in full
        (0.5, 2.0, -1.0, -1.0, False),  # good and less likely: pulled up in full
        (0.5, -2.0, 1.6, 0.0, True),  # bad and already less likely: 0.8 * 2, no further push
        (1.1, 2.0, -2.2, -2.2, False),  # inside the bounds the clip does nothing
        (0.9, -2.0, 1.8, 1.8, False),
        (1.25, 2.0, -2.5, -2.5, False),  # between 1 + clip_low and 1 + clip_high
        (1.0, 2.0, -2.0, -2.0, False),  # on-policy the gradient is that of REINFORCE
        (1.0, -2.0, 2.0, 2.0, False),
        (1.5, 0.0, 0.0, 0.0, False),
    ],
)
def test_every_side_and_sign_by_hand(ratio: float, advantage: float, loss: float, slope: float, clipped: bool) -> None:
    assert one(ratio, advantage) == (pytest.approx(loss, abs=1e-6), pytest.approx(slope, abs=1e-6), clipped)


def tokens(seed: int, count: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    old = -torch.rand(count, generator=generator, dtype=torch.float64) * 3
    new = old + torch.randn(count, generator=generator, dtype=torch.float64) * 0.4
    return new, old, torch.randn(count, generator=generator, dtype=torch.float64)


def test_equals_the_papers_formula_token_by_token() -> None:
    new, old, advantages = tokens(0)
    out = clipped_ratio(new, old, advantages, LOW, HIGH)
    seen = set()
    for t in range(len(new)):
        rho = math.exp(new[t].item() - old[t].item())
        bounded = min(max(rho, 1 - LOW), 1 + HIGH)
        a = advantages[t].item()
        assert out.loss[t].item() == pytest.approx(-min(rho * a, bounded * a), abs=1e-12)
        assert bool(out.clipped[t]) == (bounded * a < rho * a)
        seen.add((bool(out.clipped[t]), a > 0, rho > 1))
    assert len(seen) == 6  # a clipped good token is above 1 and a clipped bad one below; unclipped there are all four


def test_gradient_is_zero_exactly_where_the_clip_holds() -> None:
    new, old, advantages = tokens(1)
    new.requires_grad_()
    out = clipped_ratio(new, old, advantages, LOW, HIGH)
    out.loss.sum().backward()
    assert 20 < out.clipped.sum() < 180
    assert ((new.grad == 0) == out.clipped).all()


def test_gradient_equals_finite_differences() -> None:
    new, old, advantages = tokens(2)
    assert torch.autograd.gradcheck(lambda x: clipped_ratio(x, old, advantages, LOW, HIGH).loss, new.requires_grad_())


def test_diagnostics_carry_no_gradient() -> None:
    new, old, advantages = tokens(3)
    out = clipped_ratio(new.requires_grad_(), old, advantages, LOW, HIGH)
    assert out.loss.requires_grad
    assert not out.ratio.requires_grad
    assert not out.clipped.requires_grad


@given(shift=st.floats(-0.15, 0.25), advantage=st.floats(-3, 3))
def test_inside_the_bounds_the_slope_is_ratio_times_advantage(shift: float, advantage: float) -> None:
    loss, slope, clipped = one(1 + shift, advantage)
    assert not clipped
    assert slope == pytest.approx(-(1 + shift) * advantage, abs=1e-5)
    assert loss == pytest.approx(slope, abs=1e-5)
