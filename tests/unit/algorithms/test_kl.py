"""The k3 estimator: by hand, against exact sums over small distributions, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.kl import k3


@pytest.mark.parametrize(
    ("policy", "reference", "expected"),
    [
        (0.5, 0.5, 0.0),
        (0.5, 0.25, 0.5 - math.log(0.5) - 1),  # r = 1/2
        (0.25, 0.5, 2 - math.log(2) - 1),  # r = 2
    ],
)
def test_by_hand(policy: float, reference: float, expected: float) -> None:
    value = k3(torch.tensor([math.log(policy)]), torch.tensor([math.log(reference)]))
    assert value.item() == pytest.approx(expected, abs=1e-6)


@given(st.floats(-5, 0), st.floats(-5, 0))
def test_never_negative_and_zero_only_where_equal(policy: float, reference: float) -> None:
    value = k3(torch.tensor([policy], dtype=torch.float64), torch.tensor([reference], dtype=torch.float64)).item()
    assert value >= 0
    if abs(policy - reference) > 1e-6:
        assert value > 0


def test_small_differences_do_not_drown_in_rounding() -> None:
    # k3 is about d²/2; r - log r - 1 in fp32 would return 0 or noise of 1e-7
    value = k3(torch.tensor([-1.0]), torch.tensor([-1.0 + 2**-10])).item()
    assert value == pytest.approx(2**-21, rel=1e-3)


def distributions() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    policy, reference = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    return policy, reference.log_softmax(-1)


def test_its_expectation_is_the_divergence() -> None:
    logits, reference = distributions()
    logprobs = logits.log_softmax(-1)
    expected = (logprobs.exp() * (logprobs - reference)).sum()
    assert expected > 0.1
    torch.testing.assert_close((logprobs.exp() * k3(logprobs, reference)).sum(), expected)


def test_its_on_policy_gradient_is_that_of_the_reverse_divergence() -> None:
    logits, reference = distributions()
    logits.requires_grad_()
    logprobs = logits.log_softmax(-1)
    found = torch.autograd.grad((logprobs.exp().detach() * k3(logprobs, reference)).sum(), logits, retain_graph=True)[0]
    expected = torch.autograd.grad((reference.exp() * (reference - logprobs)).sum(), logits)[0]
    assert expected.abs().max() > 0.05  # it is not the zero gradient in expectation of k1
    torch.testing.assert_close(found, expected)


def test_gradient_equals_finite_differences() -> None:
    logits, reference = distributions()
    assert torch.autograd.gradcheck(lambda x: k3(x, reference), logits.requires_grad_())
