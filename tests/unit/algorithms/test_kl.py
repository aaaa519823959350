"""KL estimators: by hand, as loops, and what their docstrings say as exact sums over small distributions."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected, k1, k2, k3

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


@pytest.mark.parametrize("proofs", [SLOW, BY_HAND])
def test_every_estimator_has_its_proofs(proofs: dict[str, object]) -> None:
    assert list(proofs) == list(KL_ESTIMATORS)


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
    policy, reference = distributions()
    assert torch.autograd.gradcheck(lambda x: KL_ESTIMATORS[name](x, reference), policy.requires_grad_())


@pytest.mark.parametrize("name", ["k2", "k3"])
@given(policy=LOGPROBS, reference=LOGPROBS)
def test_never_negative_and_zero_only_where_equal(name: str, policy: float, reference: float) -> None:
    new, ref = torch.tensor([[policy], [reference]], dtype=torch.float64)
    value = KL_ESTIMATORS[name](new, ref).item()
    assert value >= 0
    if abs(policy - reference) > 1e-6:
        assert value > 0


def test_k1_may_be_negative() -> None:
    assert k1(torch.tensor([-2.0]), torch.tensor([-1.0])).item() == -1


def test_small_differences_do_not_drown_in_rounding() -> None:
    # k3 is about d²/2; r - log r - 1 in fp32 would return 0 or noise of 1e-7
    value = k3(torch.tensor([-1.0]), torch.tensor([-1.0 + 2**-10])).item()
    assert value == pytest.approx(2**-21, rel=1e-3)


# --- expectations: exact sums over a distribution of six tokens


def distributions() -> tuple[Tensor, Tensor]:
    """Logits of the policy and log-probabilities of the reference."""
    policy, reference = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return policy, reference.log_softmax(-1)


class World:
    """A policy with gradient, a reference, an older policy, and the true divergences of the policy."""

    def __init__(self) -> None:
        logits, self.reference = distributions()
        self.logits = logits.requires_grad_()
        self.logprobs = logits.log_softmax(-1)
        self.old = torch.randn(6, generator=torch.Generator().manual_seed(1), dtype=torch.float64).log_softmax(-1)
        self.divergence = (self.logprobs.exp() * (self.logprobs - self.reference)).sum()
        self.reverse = (self.reference.exp() * (self.reference - self.logprobs)).sum()

    def gradient(self, value: Tensor) -> Tensor:
        return torch.autograd.grad(value, self.logits, retain_graph=True)[0]

    def expected(self, term: Tensor, sampler: Tensor | None = None) -> Tensor:
        """Mean of a loss term over tokens drawn from a policy, whose own probabilities carry no gradient."""
        return ((self.logprobs if sampler is None else sampler).exp().detach() * term).sum()


@ESTIMATORS
def test_whose_value_is_unbiased(name: str) -> None:
    world = World()
    found = world.expected(KL_ESTIMATORS[name](world.logprobs, world.reference))
    assert world.divergence > 0.1
    assert torch.isclose(found, world.divergence).item() == (name in ("k1", "k3"))


@ESTIMATORS
def test_what_the_expected_gradient_in_the_loss_is(name: str) -> None:
    world = World()
    found = world.gradient(world.expected(KL_ESTIMATORS[name](world.logprobs, world.reference)))
    expected = {
        "k1": torch.zeros(6, dtype=torch.float64),
        "k2": world.gradient(world.divergence),
        "k3": world.gradient(world.reverse),
    }
    torch.testing.assert_close(found, expected[name])
    assert not torch.allclose(expected["k2"], expected["k3"], atol=0.05)
    assert expected["k2"].abs().max() > 0.05


@ESTIMATORS
@pytest.mark.parametrize("on_policy", [True, False])
def test_whose_corrected_form_is_unbiased_in_value_and_gradient(name: str, on_policy: bool) -> None:
    world = World()
    old = world.logprobs.detach() if on_policy else world.old
    term = importance_corrected(KL_ESTIMATORS[name](world.logprobs, world.reference), world.logprobs, old)
    found = world.expected(term, sampler=old)
    assert torch.isclose(found, world.divergence).item() == (name in ("k1", "k3"))
    same_gradient = torch.allclose(world.gradient(found), world.gradient(world.divergence))
    assert same_gradient == (name in ("k1", "k3"))


@ESTIMATORS
def test_off_policy_no_uncorrected_form_has_the_right_gradient(name: str) -> None:
    world = World()
    found = world.expected(KL_ESTIMATORS[name](world.logprobs, world.reference), sampler=world.old)
    assert not torch.allclose(world.gradient(found), world.gradient(world.divergence), atol=0.05)


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


# --- two tokens: what a term in the loss leaves out, and a penalty in the reward does not


def sequences() -> tuple[Tensor, Tensor, Tensor]:
    """Logits (4, 3): of the first token, and of the second after each first one; log-probabilities of the reference."""
    logits, reference = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 1.5
    logits.requires_grad_()
    return logits, logits.log_softmax(-1), reference.log_softmax(-1)


def of_tokens(table: Tensor) -> tuple[Tensor, Tensor]:
    """(3, 3) of the first and of the second token of every sequence."""
    return table[0][:, None].expand(3, 3), table[1:]


def test_a_penalty_in_the_reward_has_the_gradient_of_the_whole_divergence_and_a_term_in_the_loss_has_not() -> None:
    logits, logprobs, reference = sequences()
    (first, second), (ref_first, ref_second) = of_tokens(logprobs), of_tokens(reference)
    joint = first + second
    truth = torch.autograd.grad((joint.exp() * (joint - ref_first - ref_second)).sum(), logits, retain_graph=True)[0]
    chance = joint.exp().detach()
    penalty = (k1(first, ref_first) + k1(second, ref_second)).detach()
    in_reward = torch.autograd.grad((chance * penalty * joint).sum(), logits, retain_graph=True)[0]
    in_loss = torch.autograd.grad((chance * (k2(first, ref_first) + k2(second, ref_second))).sum(), logits)[0]
    torch.testing.assert_close(in_reward, truth)
    torch.testing.assert_close(in_loss[1:], truth[1:])  # nothing comes after the second token
    assert not torch.allclose(in_loss[0], truth[0], atol=0.05)
