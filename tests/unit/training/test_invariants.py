"""What every update must satisfy, by hand: total weight of its tokens, and a gradient where there is an advantage."""

import pytest
import torch

from groupwise.algorithms.aggregation import AGGREGATIONS, BatchSize, token_weights
from groupwise.errors import InvariantError
from groupwise.training.invariants import check_gradient, check_weights

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
