"""Token weights: by hand, as sums over a batch, and against the papers' nested loops."""

from collections.abc import Callable
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.aggregation import AGGREGATIONS, BatchSize, token_weights

LENGTHS = [1, 3, 4]
BATCH = BatchSize(num_completions=3, num_tokens=8, max_tokens=10)


def weights(aggregation: str, lengths: list[int] = LENGTHS, batch: BatchSize = BATCH) -> list[float]:
    return token_weights(torch.tensor(lengths), batch, aggregation).tolist()


BY_HAND = {
    "constant": [1 / 30] * 8,
    "token": [1 / 8] * 8,
    "sequence": [1 / 3, *[1 / 9] * 3, *[1 / 12] * 4],
}

# --- the papers' losses as nested loops over completions and tokens
SLOW: dict[str, Callable[[list[list[float]]], float]] = {
    "constant": lambda rows: sum(sum(row) / BATCH.max_tokens for row in rows) / len(rows),  # arXiv:2503.20783, §3.2
    "token": lambda rows: sum(sum(row) for row in rows) / sum(len(row) for row in rows),  # arXiv:2503.14476, eq. 8
    "sequence": lambda rows: sum(sum(row) / len(row) for row in rows) / len(rows),  # arXiv:2402.03300, eq. 3
}


@pytest.mark.parametrize("proofs", [SLOW, BY_HAND])
def test_every_aggregation_has_its_proofs(proofs: dict[str, object]) -> None:
    assert list(proofs) == list(AGGREGATIONS)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_by_hand(aggregation: str) -> None:
    assert weights(aggregation) == pytest.approx(BY_HAND[aggregation])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@given(rows=st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=10), min_size=1, max_size=5))
def test_the_loss_equals_the_papers_loops(aggregation: str, rows: list[list[float]]) -> None:
    lengths = [len(row) for row in rows]
    found = weights(aggregation, lengths, BatchSize(len(rows), sum(lengths), BATCH.max_tokens))
    total = sum(weight * loss for weight, loss in zip(found, chain(*rows), strict=True))
    assert total == pytest.approx(SLOW[aggregation](rows), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("aggregation", "total"), [("constant", 8 / 30), ("token", 1.0), ("sequence", 1.0)])
def test_sums_over_the_batch(aggregation: str, total: float) -> None:
    assert sum(weights(aggregation)) == pytest.approx(total)


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_a_micro_batch_gets_the_weights_of_the_whole_batch(aggregation: str) -> None:
    parts = weights(aggregation, LENGTHS[:1]) + weights(aggregation, LENGTHS[1:])
    assert parts == pytest.approx(weights(aggregation))


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_skipped_completions_stay_in_the_denominator(aggregation: str) -> None:
    # the same eight tokens in a batch of twice the size weigh half
    doubled = BatchSize(num_completions=6, num_tokens=16, max_tokens=10)
    assert weights(aggregation, batch=doubled) == pytest.approx([w / 2 for w in weights(aggregation)])


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_weights_are_fp32(aggregation: str) -> None:
    assert token_weights(torch.tensor(LENGTHS), BATCH, aggregation).dtype is torch.float32
