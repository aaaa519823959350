"""Losses on pairs: by hand, against loops written from the papers, finite differences, and what each claims."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.algorithms.preferences import (
    PREFERENCE_LOSSES,
    REFERENCE_FREE,
    PairLogprobs,
    ReliabilityBin,
    Strength,
    bradley_terry,
    calibration_error,
    centring,
    preferred,
    reliability,
)

STRENGTH = Strength(beta=0.3, gamma=0.4)
LOSSES = pytest.mark.parametrize("name", PREFERENCE_LOSSES)
scores = st.floats(-8, 8, width=32)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def slow_dpo(chosen: float, rejected: float, s: Strength) -> float:
    return -math.log(sigmoid(s.beta * chosen - s.beta * rejected))


def slow_ipo(chosen: float, rejected: float, s: Strength) -> float:
    return (chosen - rejected - 1 / (2 * s.beta)) ** 2


def slow_simpo(chosen: float, rejected: float, s: Strength) -> float:
    return -math.log(sigmoid(s.beta * chosen - s.beta * rejected - s.gamma))


SLOW: dict[str, tuple[Callable[[float, float, Strength], float], bool, bool]] = {
    "dpo": (slow_dpo, True, False),
    "ipo": (slow_ipo, True, True),
    "simpo": (slow_simpo, False, True),
}
"""Loss of one pair; whether it looks at the ratio to the reference, and at the mean per token."""


def pairs(seed: int = 0, count: int = 6) -> PairLogprobs:
    draw = torch.Generator().manual_seed(seed)
    logprobs = [-8 * torch.rand(count, generator=draw, dtype=torch.float64) for _ in range(4)]
    lengths = [torch.randint(1, 9, (count,), generator=draw) for _ in range(2)]
    return PairLogprobs(*logprobs, *lengths)


def swapped(p: PairLogprobs) -> PairLogprobs:
    return PairLogprobs(p.rejected, p.chosen, p.ref_rejected, p.ref_chosen, p.rejected_lengths, p.chosen_lengths)


def test_every_loss_has_a_slow_one() -> None:
    assert SLOW.keys() == PREFERENCE_LOSSES.keys()
    assert {name for name, (_, with_reference, _) in SLOW.items() if not with_reference} == REFERENCE_FREE


def test_bradley_terry_by_hand() -> None:
    # odds of 3 : 1 for the chosen one
    assert bradley_terry(Tensor([math.log(3)]), Tensor([0.0])).item() == pytest.approx(math.log(4 / 3))
    assert bradley_terry(Tensor([0.0]), Tensor([math.log(3)])).item() == pytest.approx(math.log(4))
    assert bradley_terry(Tensor([2.0]), Tensor([0.5]), Tensor([1.5])).item() == pytest.approx(math.log(2))


@given(scores, scores, st.floats(-5, 5, width=32))
def test_bradley_terry_sees_only_the_difference(chosen: float, rejected: float, shift: float) -> None:
    c, r = torch.tensor([chosen], dtype=torch.float64), torch.tensor([rejected], dtype=torch.float64)
    torch.testing.assert_close(bradley_terry(c + shift, r + shift), bradley_terry(c, r))
    # both orders together: the probabilities sum to one
    assert (torch.exp(-bradley_terry(c, r)) + torch.exp(-bradley_terry(r, c))).item() == pytest.approx(1)


def test_a_margin_is_taken_off_the_difference_and_the_slope_is_the_probability_of_being_wrong() -> None:
    chosen, rejected = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    bradley_terry(chosen, rejected, margin=1.0).sum().backward()
    assert chosen.grad.item() == pytest.approx(-sigmoid(1.0))
    assert rejected.grad.item() == pytest.approx(sigmoid(1.0))


@given(scores, scores)
def test_centring_is_least_where_the_two_scores_cancel(chosen: float, rejected: float) -> None:
    value = centring(Tensor([chosen]), Tensor([rejected])).item()
    assert value == pytest.approx((chosen + rejected) ** 2, rel=1e-5)
    assert centring(Tensor([chosen]), Tensor([-chosen])).item() == 0


@LOSSES
def test_losses_equal_the_papers_loops(name: str) -> None:
    given, (slow, with_reference, per_token) = pairs(), SLOW[name]
    found = PREFERENCE_LOSSES[name](given, STRENGTH)
    for i in range(len(given.chosen)):
        values = []
        for own, reference, length in (
            (given.chosen[i], given.ref_chosen[i], given.chosen_lengths[i]),
            (given.rejected[i], given.ref_rejected[i], given.rejected_lengths[i]),
        ):
            value = own.item() - (reference.item() if with_reference else 0)
            values.append(value / (length.item() if per_token else 1))
        assert found.loss[i].item() == pytest.approx(slow(values[0], values[1], STRENGTH))
        assert found.chosen[i].item() == pytest.approx(STRENGTH.beta * values[0])
        assert found.rejected[i].item() == pytest.approx(STRENGTH.beta * values[1])


@LOSSES
def test_gradients_equal_finite_differences(name: str) -> None:
    given = pairs()

    def loss(chosen: Tensor, rejected: Tensor) -> Tensor:
        return PREFERENCE_LOSSES[name](given._replace(chosen=chosen, rejected=rejected), STRENGTH).loss

    assert torch.autograd.gradcheck(loss, (given.chosen.requires_grad_(), given.rejected.requires_grad_()))


@LOSSES
def test_the_gradient_raises_the_chosen_and_lowers_the_rejected(name: str) -> None:
    strength = STRENGTH._replace(beta=0.05 if name == "ipo" else 0.3)
    chosen, rejected = (tensor.requires_grad_() for tensor in pairs()[:2])
    PREFERENCE_LOSSES[name](pairs()._replace(chosen=chosen, rejected=rejected), strength).loss.sum().backward()
    assert rejected.grad is not None
    assert (chosen.grad < 0).all()
    assert (rejected.grad > 0).all()


@LOSSES
def test_swapping_the_two_swaps_the_rewards_and_flips_the_accuracy(name: str) -> None:
    given = pairs()
    one, other = (PREFERENCE_LOSSES[name](each, STRENGTH) for each in (given, swapped(given)))
    assert torch.equal(one.chosen, other.rejected)
    assert np.add(preferred(one.chosen, one.rejected), preferred(other.chosen, other.rejected)).tolist() == [1.0] * 6


@LOSSES
def test_the_reference_is_read_where_it_should_be(name: str) -> None:
    given = pairs()
    moved = given._replace(ref_chosen=given.ref_chosen - 1)
    same = torch.equal(*(PREFERENCE_LOSSES[name](each, STRENGTH).loss for each in (given, moved)))
    assert same == (name in REFERENCE_FREE)


def test_at_the_reference_dpo_is_log_2_and_ipo_its_target() -> None:
    given = pairs()
    same = given._replace(ref_chosen=given.chosen, ref_rejected=given.rejected)
    found = PREFERENCE_LOSSES["dpo"](same, Strength(0.1)).loss
    torch.testing.assert_close(found, torch.full_like(found, math.log(2)))
    found = PREFERENCE_LOSSES["ipo"](same, Strength(0.1)).loss
    torch.testing.assert_close(found, torch.full_like(found, 25.0))


def test_dpo_is_bradley_terry_on_the_implicit_rewards() -> None:
    found = PREFERENCE_LOSSES["dpo"](pairs(), Strength(0.7))
    torch.testing.assert_close(found.loss, bradley_terry(found.chosen, found.rejected))


def test_reliability_by_hand() -> None:
    chosen, rejected = [4.0, 1.0, 1.1, 1.0], [1.0, 3.0, 1.0, 1.0]
    bins = reliability(chosen, rejected, num_bins=2)
    assert bins == [
        pytest.approx(ReliabilityBin((0.5 + sigmoid(0.1)) / 2, 0.75, 2)),
        pytest.approx(ReliabilityBin((sigmoid(2) + sigmoid(3)) / 2, 0.5, 2)),
    ]
    first, second = abs(0.75 - bins[0].confidence), abs(0.5 - bins[1].confidence)
    assert calibration_error(bins) == pytest.approx((first + second) / 2)


@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=40), st.integers(1, 12))
def test_bins_hold_every_pair_once_and_are_of_equal_mass(found: list[tuple[float, float]], num_bins: int) -> None:
    chosen, rejected = zip(*found, strict=True)
    bins = reliability(chosen, rejected, num_bins)
    sizes = [one.num_pairs for one in bins]
    assert sum(sizes) == len(found)
    assert len(bins) == min(num_bins, len(found))
    assert max(sizes) - min(sizes) <= 1
    assert [one.confidence for one in bins] == sorted(one.confidence for one in bins)
    right = sum(one.num_pairs * one.accuracy for one in bins)
    assert right == pytest.approx(sum(preferred(chosen, rejected)))
    assert 0 <= calibration_error(bins) <= 1


def test_scores_that_are_the_true_log_odds_are_calibrated_and_doubled_ones_are_not() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(0, 1.5, (2, 40_000))
    first_wins = generator.random(40_000) < 1 / (1 + np.exp(second - first))
    chosen, rejected = np.where(first_wins, first, second), np.where(first_wins, second, first)
    assert calibration_error(reliability(chosen, rejected)) < 0.01
    assert calibration_error(reliability(2 * chosen, 2 * rejected)) > 0.08


@LOSSES
def test_implicit_rewards_carry_no_gradient(name: str) -> None:
    known = pairs()
    known.chosen.requires_grad_()
    known.rejected.requires_grad_()
    found = PREFERENCE_LOSSES[name](known, STRENGTH)
    assert found.loss.requires_grad
    assert not found.chosen.requires_grad
    assert not found.rejected.requires_grad


def test_defaults_and_no_pairs() -> None:
    assert Strength() == (0.1, 0.0)
    assert reliability([], []) == []
    assert math.isnan(calibration_error([]))
    bins = reliability(np.arange(1.0, 21.0), np.zeros(20))
    assert len(bins) == 10
    assert {(type(one.confidence), type(one.accuracy)) for one in bins} == {(float, float)}


def test_pairs_of_equal_confidence_keep_their_order() -> None:
    chosen = [1.0, 2.0] * 50 + [-1.0, -2.0] * 50  # two confidences in turn, right in the first half
    assert [one.accuracy for one in reliability(chosen, [0.0] * 200, num_bins=4)] == [1.0, 0.0, 1.0, 0.0]
