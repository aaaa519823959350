"""Sums of gradients in a fixed order: the one that several ranks add in, computed by one process."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from groupwise.errors import ConfigError, InvariantError
from groupwise.models import backbone
from groupwise.models.backbone import fingerprint
from groupwise.ranks import RanksConfig, group
from groupwise.ranks.group import RANKS, Ranks, added
from groupwise.ranks.sharding import clip_by_norm
from groupwise.training.gradient import accumulate
from groupwise.training.optimizer import Optimizer, OptimizerConfig

CPU = torch.device("cpu")


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    torch.set_num_threads(1)


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield
    RANKS.partial_sums = 1


def by_hand(parts: list[Tensor], partial_sums: int) -> Tensor:
    """Rounds of so many; within a round neighbours, their sums, and so on; rounds one after the other."""
    total = None
    for first in range(0, len(parts), partial_sums):
        level = parts[first : first + partial_sums]
        while len(level) > 1:
            level = [sum(level[i + 1 : i + 2], level[i]) for i in range(0, len(level), 2)]
        total = level[0] if total is None else total + level[0]
    assert total is not None
    return total


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("partial_sums", [2, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("num_items", [1, 2, 5, 8, 15])
def test_gradients_are_added_in_rounds_neighbours_first(
    sums: None, threads: None, num_threads: int, partial_sums: int, num_items: int
) -> None:
    torch.set_num_threads(num_threads)
    RANKS.partial_sums = partial_sums
    generator = torch.Generator().manual_seed(num_items)
    parts = [torch.randn(50, generator=generator) * 10.0**i for i in range(-3, num_items - 3)]
    costs = [(i * 7) % 4 for i in range(num_items)]
    weights = [torch.zeros(50, requires_grad=True), torch.zeros(3, requires_grad=True)]
    compute = lambda i: ((weights[0] * parts[i]).sum(), i)  # noqa: E731
    assert list(accumulate(compute, range(num_items), weights, CPU, costs)) == list(range(num_items))
    order = sorted(range(num_items), key=lambda i: -costs[i])
    assert weights[0].grad is not None
    assert torch.equal(weights[0].grad, by_hand([parts[i] for i in order], partial_sums))
    assert weights[1].grad is None


def test_the_order_matters_so_the_test_above_can_fail() -> None:
    parts = [torch.tensor([value]) for value in (1e8, 1.0, -1e8, 1.0)]
    assert by_hand(parts, 4).item() != by_hand(parts, 1).item()
    assert added([part.clone() for part in parts]).item() == by_hand(parts, 4).item() == 0.0
    assert by_hand(parts, 1).item() == 1.0


def test_the_norm_is_that_of_all_gradients_and_clips_them() -> None:
    weights = [torch.zeros(2, requires_grad=True), torch.zeros(1, 1, requires_grad=True), torch.zeros(4)]
    weights[0].grad, weights[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])
    assert clip_by_norm(weights, 10.0) == 5.0
    assert weights[0].grad.tolist() == [3.0, 0.0]
    assert clip_by_norm(weights, 1.0) == 5.0
    assert torch.allclose(weights[0].grad, torch.tensor([0.6, 0.0]))
    assert torch.allclose(weights[1].grad, torch.tensor([[0.8]]))


def test_shares_are_even_and_put_together_again() -> None:
    ranks = [Ranks() for _ in range(2)]
    for number, one in enumerate(ranks):
        one.rank, one.size, one.partial_sums = number, 2, 4
    items = list(range(11))
    shares = [share for one in ranks for share in one.shares(items)]
    assert shares == [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7]]
    assert group._interleaved(shares) == items
    assert Ranks().shares(items) == [items]
    assert Ranks().collect([items]) == items


def test_a_micro_batch_holds_a_share_at_most() -> None:
    ranks = Ranks()
    assert ranks.portion(100, 30) == 100
    ranks.partial_sums = 4
    assert ranks.portion(100, 30) == 8
    assert ranks.portion(5, 30) == 5
    assert ranks.portion(5, 0) == 1


def test_partial_sums_go_with_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    said = r"partial_sums = 2 does not go with 4 ranks: allowed are 0, 4 and 8"
    with pytest.raises(ConfigError, match=said), Ranks().joined(RanksConfig(partial_sums=2)):
        pass
    assert [group._partial_sums(asked, ranks) for asked, ranks in ((0, 1), (0, 3), (8, 4), (5, 1))] == [1, 3, 8, 5]


def test_one_process_keeps_its_place_and_sends_nothing() -> None:
    ranks = Ranks()
    with ranks.joined(RanksConfig()):
        assert (ranks.rank, ranks.size, ranks.are_sums_fixed) == (0, 1, False)
        assert ranks.by_first(lambda: 3) == 3
        assert ranks.most(4) == 4
        assert ranks.each(lambda i: i * i, [1, 2, 3]) == [1, 4, 9]
        ranks.agree("anything", object())


def test_ranks_that_hold_different_things_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks()
    ranks.size = 2
    monkeypatch.setattr(ranks, "to_all", lambda own: [own, "3"])
    with pytest.raises(InvariantError, match=r"do not agree about the number of micro-batches: rank 0: 2; rank 1: 3"):
        ranks.agree("the number of micro-batches", 2)


def test_sums_of_shards_make_the_fingerprint_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {"a": torch.randn(5, 3), "b": torch.randn(7)}
    expected = fingerprint(whole.items())
    monkeypatch.setattr(backbone, "is_sharded", lambda _: True)
    totals = []
    monkeypatch.setattr(RANKS, "total", lambda sums: (totals.append(sums), sum(totals))[1])
    for rows in (slice(0, 2), slice(2, 9)):
        found = fingerprint((name, tensor[rows]) for name, tensor in whole.items())
    assert found == expected


@pytest.mark.parametrize("shape", [(33,), (12, 7), (12, 16)], ids=str)
def test_an_update_has_the_same_bits_however_rows_are_divided(shape: tuple[int, ...], sums: None) -> None:
    """A kernel takes 8 or 16 numbers at a time and rounds those at the end otherwise; ranks have other ends."""
    RANKS.partial_sums = 4
    generator = torch.Generator().manual_seed(0)
    start, *gradients = (torch.randn(shape, generator=generator) for _ in range(4))
    config = OptimizerConfig(lr=1e-2, weight_decay=0.1, max_grad_norm=0.0)

    def after(rows: slice) -> Tensor:
        weight = torch.nn.Parameter(start[rows].clone())
        optimizer = Optimizer([("w", weight)], config, num_steps=3)
        for step, gradient in enumerate(gradients):
            weight.grad = gradient[rows].clone()
            optimizer.update(step)
        return weight.detach()

    whole = after(slice(None))
    for size in (1, 3, 5):
        pieces = [after(slice(first, first + size)) for first in range(0, shape[0], size)]
        assert torch.equal(torch.cat(pieces), whole)
    RANKS.partial_sums = 1
    torch.testing.assert_close(after(slice(None)), whole, rtol=1e-6, atol=1e-7)
