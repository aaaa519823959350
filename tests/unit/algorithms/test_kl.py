"""KL estimators: by hand, as loops, and their signs; the oracle has their expectations (tests/lab/oracle)."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected, k1, k3

ESTIMATORS = pytest.mark.parametrize("name", KL_ESTIMATORS)
LOGPROBS = st.floats(-5, 0)

# --- the definitions in r = π_ref / π
SLOW: dict[str, Callable[[float], float]] = {
    "k1": lambda r: -math.log(r),
    "k2": lambda r: math.log(r) ** 2 / 2,
    "k3": lambda r: r - math.log(r) - 1,
}
# --- for r = 1, 1/2, 2: log 2 is 0.693147, its square 0.480453
BY_HAND: dict[str, tuple[float, float, float]] = {
    "k1": (0.0, 0.693147, -0.693147),
    "k2": (0.0, 0.240227, 0.240227),
    "k3": (0.0, 0.193147, 0.306853),
}


@ESTIMATORS
def test_by_hand(name: str) -> None:
    policy, reference = torch.tensor([0.5, 0.5, 0.25]).log(), torch.tensor([0.5, 0.25, 0.5]).log()
    assert KL_ESTIMATORS[name](policy, reference).tolist() == pytest.approx(BY_HAND[name], abs=1e-6)


@ESTIMATORS
@given(rows=st.lists(st.tuples(LOGPROBS, LOGPROBS), min_size=1, max_size=6))
def test_equals_its_definition_as_a_loop(name: str, rows: list[tuple[float, float]]) -> None:
    policy, reference = torch.tensor(rows, dtype=torch.float64).unbind(1)
    expected = [SLOW[name](math.exp(ref) / math.exp(new)) for new, ref in rows]
    assert KL_ESTIMATORS[name](policy, reference).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@ESTIMATORS
def test_gradient_equals_finite_differences(name: str) -> None:
    policy, reference = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: KL_ESTIMATORS[name](x, reference.log_softmax(-1)), policy.requires_grad_()
    )


@pytest.mark.parametrize("name", ["k2", "k3"])
@given(policy=LOGPROBS, reference=LOGPROBS)
def test_never_negative_and_zero_only_where_equal(name: str, policy: float, reference: float) -> None:
    new, ref = torch.tensor([[policy], [reference]], dtype=torch.float64)
    value = KL_ESTIMATORS[name](new, ref).item()
    assert value >= 0
    if abs(policy - reference) > 1e-6:
        assert value > 0


def test_small_differences_do_not_drown_in_rounding() -> None:
    # k3 is about d²/2; r - log r - 1 in fp32 would return 0 or noise of 1e-7
    value = k3(torch.tensor([-1.0]), torch.tensor([-1.0 + 2**-10])).item()
    assert value == pytest.approx(2**-21, rel=1e-3)


@given(kl=st.floats(-3, 3), new=LOGPROBS, old=LOGPROBS)
def test_the_correction_is_the_ratio_times_the_estimate(kl: float, new: float, old: float) -> None:
    term, logprobs, old_logprobs = torch.tensor([[kl], [new], [old]], dtype=torch.float64)
    expected = math.exp(new) / math.exp(old) * kl
    assert importance_corrected(term, logprobs, old_logprobs).item() == pytest.approx(expected, rel=1e-9)


def test_the_corrected_term_by_hand() -> None:
    logprobs = torch.tensor([0.5]).log().requires_grad_()
    term = importance_corrected(k1(logprobs, torch.tensor([0.25]).log()), logprobs, torch.tensor([0.25]).log())
    term.sum().backward()
    assert term.item() == pytest.approx(2 * 0.693147, abs=1e-6)
    assert logprobs.grad.item() == pytest.approx(2 * 0.693147 + 2, abs=1e-5)  # ρ (k1 + 1)
