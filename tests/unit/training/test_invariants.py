"""What every update must satisfy, by hand: sampler and trainer agree, its tokens' total weight, a gradient."""

import math

import pytest
import torch

from groupwise.algorithms.objective import AGGREGATIONS, BatchSize, token_weights
from groupwise.errors import InvariantError
from groupwise.training.invariants import check_agreement, check_gradient, check_weights

BATCH = BatchSize(num_completions=4, num_tokens=12, max_tokens=8)
"""Four completions, of which one with 3 tokens was skipped for want of signal."""


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_one_denominator_for_all_micro_batches_passes_in_any_order(aggregation: str) -> None:
    parts = [token_weights(torch.tensor(lengths), BATCH, aggregation) for lengths in ([4], [2, 3])]
    check_weights(parts, [2, 3, 4], BATCH, aggregation)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_a_denominator_of_its_own_for_each_micro_batch_is_found(aggregation: str) -> None:
    parts = [
        token_weights(torch.tensor(lengths), BatchSize(len(lengths), sum(lengths), 8), aggregation)
        for lengths in ([4], [2, 3])
    ]
    with pytest.raises(InvariantError, match="over 2 micro-batches"):
        check_weights(parts, [4, 2, 3], BATCH, aggregation)


def test_the_sums_are_named() -> None:
    # 5 of 12 tokens are there, but one has no weight
    with pytest.raises(InvariantError, match=r"sum to 0\.333333 over 1 .* 0\.416667 is right; 1 of 5 tokens"):
        check_weights([torch.tensor([1, 1, 1, 1, 0]) / 12], [3, 2], BATCH, "token")


def test_no_micro_batch_is_nothing_to_check() -> None:
    check_weights([], [], BATCH, "token")


@pytest.mark.parametrize(
    ("grad_norm", "has_advantage", "is_bounded"), [(0.1, True, False), (0.0, False, False), (0.0, True, True)]
)
def test_a_gradient_of_zero_needs_a_reason(grad_norm: float, has_advantage: bool, is_bounded: bool) -> None:
    check_gradient(grad_norm, has_advantage, is_bounded)
    with pytest.raises(InvariantError, match="exactly zero"):
        check_gradient(0.0, has_advantage=True, is_bounded=False)


def signs(number: int, size: float) -> torch.Tensor:
    """So many differences, half of them upwards and half downwards."""
    return torch.full((number,), size) * torch.tensor([1.0, -1.0]).repeat(number // 2)


def test_a_shift_of_all_tokens_stops_and_noise_of_the_same_size_does_not() -> None:
    found = check_agreement(signs(2000, 2e-5), 1.0, torch.float32)
    assert found == pytest.approx((0.0, 2e-5, 2e-5))
    with pytest.raises(InvariantError, match=r"the mean difference is -2e-05 over 2000 tokens \(allowed 2\.5e-06\)"):
        check_agreement(-signs(2000, 2e-5).abs(), 1.0, torch.float32)  # allowed: 2e-6 + 1e-3 / 2000


@pytest.mark.parametrize(
    ("temperature", "size", "stops"),
    [(1.0, 0.9e-4, False), (1.0, 1.1e-4, True), (0.5, 1.9e-4, False), (0.5, 2.1e-4, True), (2.0, 0.9e-4, False)],
)
def test_bounds_grow_below_temperature_one_and_do_not_shrink_above(
    temperature: float, size: float, stops: bool
) -> None:
    differences = signs(2000, size)
    if stops:
        with pytest.raises(InvariantError, match="difference that one token in 100 exceeds"):
            check_agreement(differences, temperature, torch.float32)
    else:
        assert check_agreement(differences, temperature, torch.float32).largest == pytest.approx(size)


@pytest.mark.parametrize(
    ("tokens", "apart", "size", "stops"),
    [(2000, 20, 9e-4, ""), (2000, 21, 9e-4, "one token in 100"), (20_000, 1, 1.1e-3, "largest"), (50, 1, 9e-4, ""),
     (50, 2, 9e-4, "one token in 100"), (1, 1, 9e-5, "")],
)  # fmt: skip
def test_one_token_in_a_hundred_may_differ_by_ten_times_as_much(
    tokens: int, apart: int, size: float, stops: str
) -> None:
    differences = torch.zeros(tokens)
    differences[:apart] = size * torch.tensor([1.0, -1.0]).repeat(apart)[:apart]
    if stops:
        with pytest.raises(InvariantError, match=stops):
            check_agreement(differences, 1.0, torch.float32)
    else:
        assert check_agreement(differences, 1.0, torch.float32).largest == pytest.approx(size)


def test_a_stated_bound_holds_for_every_token_and_alone() -> None:
    differences = torch.full((2000,), 0.3)
    assert check_agreement(differences, 1.0, torch.float32, stated=0.4).bias == pytest.approx(0.3)
    check_agreement(differences, 1.0, torch.float32, stated=math.inf)
    differences[0] = 0.5
    with pytest.raises(InvariantError, match=r"largest difference is 0\.5 .* \(allowed 0\.4\)"):
        check_agreement(differences, 0.1, torch.float32, stated=0.4)


def test_bf16_has_bounds_of_its_own() -> None:
    check_agreement(signs(2000, 0.05), 1.0, torch.bfloat16)
    with pytest.raises(InvariantError, match=r"mean difference is 0\.05"):
        check_agreement(signs(2000, 0.05).abs(), 1.0, torch.bfloat16)
    with pytest.raises(InvariantError, match=r"largest difference is 3\.1"):
        check_agreement(torch.tensor([3.1] + 1999 * [0.0]), 1.0, torch.bfloat16)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_difference_that_is_no_number_stops_whatever_is_stated(value: float) -> None:
    differences = torch.zeros(2000)
    differences[7] = value
    with pytest.raises(InvariantError, match=r"is (nan|-?inf) over 2000"):
        check_agreement(differences, 1.0, torch.float32, stated=math.inf)
