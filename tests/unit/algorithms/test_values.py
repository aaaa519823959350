"""The critic's loss and its explained variance: by hand, as loops, and at their limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.objective import clipped_value_loss, explained_variance

NUMBERS = st.floats(-3, 3)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8)
"""(value, old value, return) of every token."""


def columns(rows: list[tuple[float, ...]]) -> list[torch.Tensor]:
    return list(torch.tensor(rows, dtype=torch.float64).unbind(1))


@pytest.mark.parametrize(
    ("value", "old", "target", "loss", "slope"),
    [
        (1.0, 0.0, 1.0, 0.32, 0.0),  # right by a leap: the loss of 0.2 stays, and pulls nowhere
        (0.1, 0.0, 1.0, 0.405, -0.9),  # inside the bounds: ½ · 0.9²
        (1.0, 0.0, -1.0, 2.0, 2.0),  # a leap to the wrong side is punished in full
        (-1.0, 0.0, 1.0, 2.0, -2.0),
        (-1.0, 0.0, -1.0, 0.32, 0.0),
        (0.5, 0.5, 0.5, 0.0, 0.0),
    ],
)
def test_clipped_value_loss_by_hand(value: float, old: float, target: float, loss: float, slope: float) -> None:
    values = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    found = clipped_value_loss(values, torch.tensor([old]).double(), torch.tensor([target]).double(), clip=0.2)
    found.sum().backward()
    assert found.item() == pytest.approx(loss)
    assert values.grad.item() == pytest.approx(slope)


@given(ROWS, st.floats(0.01, 2))
def test_clipped_value_loss_equals_the_equation_as_a_loop(rows: list[tuple[float, ...]], clip: float) -> None:
    expected = []
    for value, old, target in rows:
        near = old + min(max(value - old, -clip), clip)
        expected.append(max((value - target) ** 2, (near - target) ** 2) / 2)
    assert clipped_value_loss(*columns(rows), clip).tolist() == pytest.approx(expected, abs=1e-12)


@given(ROWS)
def test_a_clip_of_zero_is_none(rows: list[tuple[float, ...]]) -> None:
    expected = [(value - target) ** 2 / 2 for value, _, target in rows]
    assert clipped_value_loss(*columns(rows), clip=0.0).tolist() == pytest.approx(expected, abs=1e-12)


@given(ROWS, st.floats(0.01, 2))
def test_clipping_never_lowers_the_loss(rows: list[tuple[float, ...]], clip: float) -> None:
    assert (clipped_value_loss(*columns(rows), clip) >= clipped_value_loss(*columns(rows), 0.0)).all()


@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_gradient_equals_finite_differences(clip: float) -> None:
    values, old, returns = torch.randn(3, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda v: clipped_value_loss(v, old, returns, clip), values.requires_grad_())


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ([0.0, 1.0, 2.0, 5.0], 1.0),  # perfect
        ([3.0, 4.0, 5.0, 8.0], 1.0),  # an offset is no spread
        ([2.0, 2.0, 2.0, 2.0], 0.0),  # knows the mean only
        ([0.0, 2.0, 4.0, 10.0], 0.0),  # twice too large: the error spreads as the returns do
        ([0.0, -1.0, -2.0, -5.0], -3.0),  # the wrong way round
        ([0.0, 0.5, 1.0, 2.5], 0.75),
    ],
)
def test_explained_variance_by_hand(values: list[float], share: float) -> None:
    found = explained_variance(torch.tensor(values), torch.tensor([0.0, 1.0, 2.0, 5.0]))
    assert found == pytest.approx(share)
    assert isinstance(found, float)


@given(st.lists(st.tuples(NUMBERS, st.integers(-8, 8).map(float)), min_size=2, max_size=8))
def test_explained_variance_equals_its_loop(rows: list[tuple[float, float]]) -> None:
    def variance(numbers: list[float]) -> float:
        mean = math.fsum(numbers) / len(numbers)
        return math.fsum((x - mean) ** 2 for x in numbers) / len(numbers)

    values, returns = columns(rows)
    of_returns = variance([target for _, target in rows])
    of_errors = variance([target - value for value, target in rows])
    expected = pytest.approx(1 - of_errors / of_returns, abs=1e-9) if of_returns else None
    assert explained_variance(values, returns) == expected


@pytest.mark.parametrize("count", [0, 1, 2, 7, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_returns_have_no_variance_to_explain(count: int, dtype: torch.dtype) -> None:
    returns = torch.full((count,), 0.1, dtype=dtype)  # whose computed variance is often not 0
    assert explained_variance(torch.arange(count, dtype=dtype), returns) is None
