"""The gradient of a sum of losses, one per micro-batch: the same bits, computed in turn or side by side."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from groupwise.models.cores import in_threads, num_side_by_side

T = TypeVar("T")
R = TypeVar("R")

MOST_WEIGHTS = 1 << 26
"""Largest model whose micro-batches are computed side by side: each of them holds a gradient of its own meanwhile, and
the products of a larger one are long enough to be split over cores."""


def accumulate(
    compute: Callable[[T], tuple[Tensor, R]], items: Sequence[T], weights: Sequence[Tensor], device: torch.device
) -> Iterator[R]:
    """Add the gradients of all losses to the weights' `.grad`, in the order of the items; take all that is yielded.

    Args:
        compute: the loss of an item, a scalar, and what else is to be known of it. It runs in another thread where
            items are computed side by side, so it changes nothing outside itself.
        items: micro-batches.
        weights: all that has a gradient.
        device: of the weights.

    Yields:
        What `compute` gave beside each loss, once its gradient is added.
    """
    if num_micro_batches_at_once(sum(map(Tensor.numel, weights)), len(items), device) < 2:
        for item in items:
            loss, report = compute(item)
            loss.backward()
            yield report
        return

    def differentiate(item: T) -> tuple[tuple[Tensor | None, ...], R]:
        loss, report = compute(item)
        return torch.autograd.grad(loss, weights, allow_unused=True), report

    for gradients, report in in_threads(differentiate, items, device):
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                gradient = gradient.to(weight.grad_dtype)  # fp32 where the optimizer keeps masters
                weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        yield report


def num_micro_batches_at_once(num_weights: int, num_items: int, device: torch.device, num_threads: int = 0) -> int:
    """How many of so many micro-batches are computed side by side, for a model of so many weights."""
    return num_side_by_side(num_items, device, num_threads) if num_weights <= MOST_WEIGHTS else 1
