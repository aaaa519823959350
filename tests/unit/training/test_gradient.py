"""The gradient of a step: the same bits, whether its micro-batches are computed in turn or side by side."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from groupwise.training import gradient
from groupwise.training.gradient import accumulate

CPU = torch.device("cpu")


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    yield torch.set_num_threads
    torch.set_num_threads(1)


def losses(weights: list[Tensor]) -> Callable[[int], tuple[Tensor, int]]:
    """Losses of items, the last weight used by odd ones alone, the one before it by none."""

    def compute(item: int) -> tuple[Tensor, int]:
        x = torch.arange(12.0).view(3, 4) / (7 + item)
        loss = (x @ weights[0]).sin().sum() * (item + 1) / 3
        return (loss * weights[-1].exp().sum() if item % 2 else loss), item

    return compute


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_side_by_side_gives_the_bits_of_one_after_the_other(num_threads: int, threads: Callable[[int], None]) -> None:
    results = []
    for number in (1, num_threads):
        threads(number)
        torch.manual_seed(0)
        weights = [torch.randn(shape, requires_grad=True) for shape in ((4, 5), (2,), (3,))]
        assert list(accumulate(losses(weights), range(11), weights, CPU)) == list(range(11))
        results.append([weight.grad for weight in weights])
    (one, two, three), others = results
    assert two is None
    assert others[1] is None
    assert torch.equal(one, others[0])
    assert torch.equal(three, others[2])


def test_gradients_are_added_to_those_that_are_there(threads: Callable[[int], None]) -> None:
    threads(2)
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.tensor([1.0, 2.0, 3.0])
    list(accumulate(lambda item: ((weight * item).sum(), item), [1, 2, 4], [weight], CPU))
    assert weight.grad.tolist() == [8.0, 9.0, 10.0]


def test_a_large_model_takes_one_micro_batch_at_a_time(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads(2)
    monkeypatch.setattr(gradient, "MOST_WEIGHTS", 2)
    weight = torch.ones(3, requires_grad=True)
    used = [
        number
        for _, number in (
            (item, torch.get_num_threads())
            for item in accumulate(lambda item: ((weight * item).sum(), item), [1, 2], [weight], CPU)
        )
    ]
    assert used == [2, 2]
    assert weight.grad is not None
    assert weight.grad.tolist() == [3.0] * 3
