"""Token weights: by hand, as sums over a batch, and against the papers' nested loops."""

import pytest
import torch

from groupwise.algorithms.aggregation import AGGREGATIONS, BatchSize, token_weights

LENGTHS = [1, 3, 4]
BATCH = BatchSize(num_completions=3, num_tokens=8, max_tokens=10)


def weights(aggregation: str, lengths: list[int] = LENGTHS, batch: BatchSize = BATCH) -> list[float]:
    return token_weights(torch.tensor(lengths), batch, aggregation).tolist()


def test_constant_by_hand() -> None:
    assert weights("constant") == pytest.approx([1 / 30] * 8)


def test_token_by_hand() -> None:
    assert weights("token") == pytest.approx([1 / 8] * 8)


def test_sequence_by_hand() -> None:
    assert weights("sequence") == pytest.approx([1 / 3, *[1 / 9] * 3, *[1 / 12] * 4])


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


def test_losses_equal_the_papers_loops() -> None:
    losses = torch.randn(8, generator=torch.Generator().manual_seed(0))
    rows = losses.split(LENGTHS)
    grpo = sum(sum(row.tolist()) / len(row) for row in rows) / len(rows)  # arXiv:2402.03300, eq. 3
    dapo = sum(sum(row.tolist()) for row in rows) / sum(LENGTHS)  # arXiv:2503.14476, eq. 8
    dr_grpo = sum(sum(row.tolist()) / BATCH.max_tokens for row in rows) / len(rows)  # arXiv:2503.20783, §3.2
    for aggregation, expected in {"sequence": grpo, "token": dapo, "constant": dr_grpo}.items():
        total = token_weights(torch.tensor(LENGTHS), BATCH, aggregation) @ losses
        assert total.item() == pytest.approx(expected, abs=1e-6)
