"""What the oracle says of KL estimators: value and gradient against three true divergences."""

import math

import groupwise_lab.oracle.kl as oracle_kl
import pytest
import torch
from groupwise_lab.oracle.kl import KlEstimate, divergences, expected
from groupwise_lab.oracle.toys import Dials, Toy, toy
from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS, importance_corrected

EXACT = {"rtol": 0, "atol": 1e-12}


def world() -> tuple[Toy, Tensor, Tensor]:
    """A world, its reference and an older policy."""
    one = toy(Dials(), 3, 3, num_prompts=2)
    return one, one.logits("reference", 1.0), one.logits("older", 0.4)


def distance(found: KlEstimate, truth: Tensor) -> float:
    return float((found.gradient - truth).norm() / truth.norm())


def test_the_true_divergence_is_the_sum_over_sequences() -> None:
    one, reference, _ = world()
    total = 0.0
    ours, theirs = (one.world.probabilities(theta) for theta in (one.theta, reference))
    for prompt in range(2):
        for p, q in zip(ours[prompt].tolist(), theirs[prompt].tolist(), strict=True):
            total += p * math.log(p / q) / 2
    assert divergences(one.world, one.theta, reference).value == pytest.approx(total, abs=1e-12)


def test_the_true_gradient_of_the_sequence_equals_finite_differences() -> None:
    one, reference, _ = world()
    truth, found, step = divergences(one.world, one.theta, reference), torch.zeros_like(one.theta), 1e-6
    for row in range(len(one.theta)):
        for column in range(one.theta.shape[1]):
            nudge = torch.zeros_like(one.theta)
            nudge[row, column] = step
            up, down = (divergences(one.world, one.theta + sign * nudge, reference).value for sign in (1, -1))
            found[row, column] = (up - down) / (2 * step)
    torch.testing.assert_close(truth.sequence, found, rtol=0, atol=1e-8)


def test_what_each_estimator_is_unbiased_for() -> None:
    one, reference, older = world()

    def found(estimator: str, place: oracle_kl.Place, sampler: Tensor | None = None) -> KlEstimate:
        return expected(one.world, one.theta, reference, estimator, place, sampler)

    truth, stale = (divergences(one.world, one.theta, reference, sampler) for sampler in (None, older))
    # values
    assert found("k1", "loss").value == pytest.approx(truth.value, abs=1e-12)
    assert found("k3", "loss").value == pytest.approx(truth.value, abs=1e-12)
    assert abs(found("k2", "loss").value / truth.value - 1) > 0.05
    assert found("k3", "loss").std < found("k1", "loss").std
    # gradients of a term in the loss, on-policy
    assert found("k1", "loss").gradient.abs().max() < 1e-15
    torch.testing.assert_close(found("k2", "loss").gradient, truth.token, **EXACT)
    torch.testing.assert_close(found("k3", "loss").gradient, truth.token_forward, **EXACT)
    assert distance(found("k3", "loss"), truth.token) > 0.1
    # times the ratio, on-policy and off-policy
    for sampler, meant in ((None, truth), (older, stale)):
        for estimator in ("k1", "k3"):
            corrected = found(estimator, "corrected", sampler)
            torch.testing.assert_close(corrected.gradient, meant.token, **EXACT)
            assert corrected.value == pytest.approx(meant.value, abs=1e-12)
        assert distance(found("k2", "corrected", sampler), meant.token) > 0.1
    # in the reward
    torch.testing.assert_close(found("k1", "reward").gradient, truth.sequence, **EXACT)
    assert distance(found("k2", "reward"), truth.sequence) > 0.1
    assert distance(found("k3", "reward"), truth.sequence) > 0.1


def test_off_policy_nothing_in_the_loss_is_unbiased_without_the_ratio() -> None:
    one, reference, older = world()
    stale = divergences(one.world, one.theta, reference, older)
    for estimator in KL_ESTIMATORS:
        found = expected(one.world, one.theta, reference, estimator, "loss", older)
        assert min(distance(found, stale.token), distance(found, stale.token_forward)) > 0.03


def test_with_one_token_the_token_is_the_sequence() -> None:
    one = toy(Dials(), 4, 1)
    truth = divergences(one.world, one.theta, one.logits("reference", 1.0))
    torch.testing.assert_close(truth.token, truth.sequence, **EXACT)


@pytest.mark.parametrize("name", sorted(KL_ESTIMATORS))
def test_a_flipped_sign_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = KL_ESTIMATORS[name]
    monkeypatch.setitem(KL_ESTIMATORS, name, lambda logprobs, ref: -right(logprobs, ref))
    with pytest.raises(AssertionError):
        test_what_each_estimator_is_unbiased_for()


def test_a_correction_without_gradient_through_the_ratio_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def detached(kl: Tensor, logprobs: Tensor, old: Tensor) -> Tensor:
        return importance_corrected(kl, logprobs.detach(), old)

    monkeypatch.setattr(oracle_kl, "importance_corrected", detached)
    with pytest.raises(AssertionError):
        test_what_each_estimator_is_unbiased_for()
