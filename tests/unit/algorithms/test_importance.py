"""Importance weights: by hand, as loops, and what they leave alone; the oracle has their bias (tests/lab/oracle)."""

import math
from itertools import product
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.algorithms.importance import ImportanceWeights, importance_weights

LOGPROBS = st.floats(-4, 0)
BATCHES = st.lists(st.lists(st.tuples(LOGPROBS, LOGPROBS), min_size=1, max_size=4), min_size=1, max_size=4)
"""(log π_old, log μ) of the tokens of every completion."""
Batch = list[list[tuple[float, float]]]
Level = Literal["token", "sequence"]
Bound = Literal["truncate", "mask"]
KINDS = list(product(("token", "sequence"), ("truncate", "mask")))
FEW = settings(max_examples=30)  # each of these tests runs for every kind
EVERY_KIND = pytest.mark.parametrize(("level", "bound"), KINDS)


def weigh(batch: Batch, level: Level, bound: Bound, cap: float = 2.0) -> ImportanceWeights:
    old, sampling = torch.tensor([pair for one in batch for pair in one], dtype=torch.float64).unbind(1)
    return importance_weights(old, sampling, torch.tensor([len(one) for one in batch]), level, bound, cap)


def slow(batch: Batch, level: Level, bound: Bound, cap: float) -> tuple[list[float], list[bool], float, float]:
    weights, bounded, units = [], [], []
    for one in batch:
        ratios = [math.exp(old) / math.exp(sampling) for old, sampling in one]
        for ratio in [math.prod(ratios)] if level == "sequence" else ratios:
            weight = ratio if ratio <= cap else (cap if bound == "truncate" else 0.0)
            units.append(weight)
            tokens = len(one) if level == "sequence" else 1
            weights += [weight] * tokens
            bounded += [ratio > cap] * tokens
    return weights, bounded, math.fsum(units), math.fsum(weight * weight for weight in units)


# --- ratios 4 and 1/4 in the first completion, 3 in the second, 1/2 and 1/2 in the third
LOG2 = math.log(2)
HAND: Batch = [[(-LOG2, -3 * LOG2), (-3 * LOG2, -LOG2)], [(math.log(0.6), math.log(0.2))], [(-2 * LOG2, -LOG2)] * 2]
BY_HAND: dict[tuple[str, str], tuple[list[float], list[bool], float, float]] = {
    ("token", "truncate"): ([2, 0.25, 2, 0.5, 0.5], [True, False, True, False, False], 5.25, 8.5625),
    ("token", "mask"): ([0, 0.25, 0, 0.5, 0.5], [True, False, True, False, False], 1.25, 0.5625),
    ("sequence", "truncate"): ([1, 1, 2, 0.25, 0.25], [False, False, True, False, False], 3.25, 5.0625),
    ("sequence", "mask"): ([1, 1, 0, 0.25, 0.25], [False, False, True, False, False], 1.25, 1.0625),
}


@EVERY_KIND
def test_by_hand(level: Level, bound: Bound) -> None:
    weights, bounded, total, squares = BY_HAND[level, bound]
    found = weigh(HAND, level, bound)
    assert found.weights.tolist() == pytest.approx(weights)
    assert found.bounded.tolist() == bounded
    assert (found.sum.item(), found.sum_squares.item()) == pytest.approx((total, squares))


@EVERY_KIND
@FEW
@given(batch=BATCHES, cap=st.floats(0.3, 5))
def test_equals_its_loop(level: Level, bound: Bound, batch: Batch, cap: float) -> None:
    weights, bounded, total, squares = slow(batch, level, bound, cap)
    found = weigh(batch, level, bound, cap)
    assert found.bounded.tolist() == bounded
    assert found.weights.tolist() == pytest.approx(weights, rel=1e-9)
    assert (found.sum.item(), found.sum_squares.item()) == pytest.approx((total, squares), rel=1e-9)


@EVERY_KIND
@FEW
@given(batch=BATCHES)
def test_the_same_engine_needs_no_correction(level: Level, bound: Bound, batch: Batch) -> None:
    found = weigh([[(old, old) for old, _ in one] for one in batch], level, bound, cap=1.0)
    units = len(batch) if level == "sequence" else sum(map(len, batch))
    assert (found.weights == 1).all()
    assert not found.bounded.any()  # a weight that equals the cap is not above it
    assert found.sum == found.sum_squares == units


@EVERY_KIND
@FEW
@given(batch=BATCHES, data=st.data())
def test_completions_do_not_see_each_other(level: Level, bound: Bound, batch: Batch, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(batch))))
    alone = [weigh([batch[i]], level, bound) for i in order]
    together = weigh([batch[i] for i in order], level, bound)
    torch.testing.assert_close(together.weights, torch.cat([one.weights for one in alone]))
    torch.testing.assert_close(together.sum, torch.stack([one.sum for one in alone]).sum())


@EVERY_KIND
def test_a_ratio_without_bounds_is_bounded(level: Level, bound: Bound) -> None:
    found = weigh([[(0.0, -1e4)]], level, bound)
    assert found.weights.tolist() == [2.0 if bound == "truncate" else 0.0]
    assert found.bounded.all()


@EVERY_KIND
def test_weights_carry_no_gradient(level: Level, bound: Bound) -> None:
    old = torch.tensor([-1.0, -2.0], requires_grad=True)
    found = importance_weights(old, torch.tensor([-2.0, -1.5]), torch.tensor([2]), level, bound)
    assert not any(part.requires_grad for part in found)
    assert found.weights.dtype is torch.float32


def test_by_default_tokens_are_truncated_at_two() -> None:
    old, sampling = torch.tensor([pair for one in HAND for pair in one]).unbind(1)
    found = importance_weights(old, sampling, torch.tensor([2, 1, 2]))
    assert found.weights.tolist() == pytest.approx([2, 0.25, 2, 0.5, 0.5])


@EVERY_KIND
@FEW
@given(batch=BATCHES)
def test_the_effective_sample_size_is_at_most_the_sample_size(level: Level, bound: Bound, batch: Batch) -> None:
    found = weigh(batch, level, bound)
    units = len(batch) if level == "sequence" else sum(map(len, batch))
    assert found.sum.square() <= units * found.sum_squares * (1 + 1e-12)
