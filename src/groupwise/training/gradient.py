"""The gradient of a sum of losses, one per micro-batch: the same bits, computed in turn, side by side or on ranks.

Sums of floating-point numbers depend on their order. Where `ranks.partial_sums` is L > 1, the order is this one,
however many processes there are: the micro-batches, largest first, are taken in rounds of L; the gradients of a round
are added pairwise, neighbours first; and the sums of the rounds one after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from groupwise.models.cores import in_threads, num_side_by_side
from groupwise.ranks.group import RANKS, portable
from groupwise.ranks.sharding import reduce_gradients

T = TypeVar("T")
R = TypeVar("R")
Gradients = Sequence[Tensor | None]  # One for each weight; None where it has no part in the loss

MOST_WEIGHTS = 1 << 26
"""Largest model whose micro-batches are computed side by side: each of them holds its own gradient meanwhile, and the
products of a larger model are long enough to be split over cores."""


def accumulate(
    compute: Callable[[T], tuple[Tensor, R]],
    items: Sequence[T],
    weights: Sequence[Tensor],
    device: torch.device,
    costs: Sequence[int] | None = None,
) -> Iterator[R]:
    """Add the gradients of all losses to the weights' `.grad`, in the order of the items; take all that is yielded.

    Among ranks every item is computed by one of them, and every rank yields what was computed of all items.

    Args:
        compute: returns the loss of an item, a scalar, and a report of it. It runs in another thread where items are
            computed side by side, so it changes nothing outside itself.
        items: micro-batches.
        weights: all that has a gradient.
        device: of the weights.
        costs: tokens of each item, by which ranks get items of about one size at a time.

    Yields:
        The report of each item, once its gradient is added.
    """

    def differentiate(item: T) -> tuple[Gradients, R]:
        loss, report = compute(item)
        return torch.autograd.grad(loss, weights, allow_unused=True), report

    in_parallel = num_micro_batches_at_once(sum(map(Tensor.numel, weights)), len(items), device) > 1
    if RANKS.are_sums_fixed:
        order = sorted(range(len(items)), key=lambda i: -costs[i]) if costs else list(range(len(items)))
        chosen = [items[i] for i in order]
        if RANKS.size > 1:
            reports = _on_ranks(compute, chosen)
        else:
            made = in_threads(differentiate, chosen, device) if in_parallel else map(differentiate, chosen)
            reports = _in_rounds(made, len(chosen), weights)
        yield from (report for _, report in sorted(zip(order, reports, strict=True), key=lambda pair: pair[0]))
    elif in_parallel:
        for gradients, report in in_threads(differentiate, items, device):
            _add(gradients, weights)
            yield report
    else:
        for item in items:
            loss, report = compute(item)
            loss.backward()
            yield report


def _add(gradients: Gradients, weights: Sequence[Tensor]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            gradient = gradient.to(weight.grad_dtype)  # fp32 where the optimizer keeps masters
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def _in_rounds(made: Iterator[tuple[Gradients, R]], count: int, weights: Sequence[Tensor]) -> list[R]:
    """In one process, the sums of ranks. Neighbours are added as soon as both are there, so few wait."""
    waiting: list[tuple[int, Gradients]] = []  # sums of 1, 2, 4, ... neighbours, each with the power
    reports = []
    for i, (gradients, report) in enumerate(made, 1):
        waiting.append((0, gradients))
        is_last = i % RANKS.partial_sums == 0 or i == count
        while len(waiting) > 1 and (is_last or waiting[-1][0] == waiting[-2][0]):
            (_, right), (power, left) = waiting.pop(), waiting.pop()
            sums = [b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)]
            waiting.append((power + 1, sums))
        if is_last:
            _add(waiting.pop()[1], weights)
        reports.append(report)
    return reports


def _on_ranks(compute: Callable[[T], tuple[Tensor, R]], items: Sequence[T]) -> list[R]:
    """Every rank takes its places of every round; where no item is left for one, the loss of another weighs nothing."""
    RANKS.agree("the number of micro-batches", len(items))
    ours: list[tuple[int, R]] = []
    places = RANKS.partial_sums // RANKS.size
    for first in range(0, len(items), RANKS.partial_sums):
        for place in range(places):
            at = first + RANKS.rank * places + place
            reduce_gradients(now=place == places - 1)
            loss, report = compute(items[min(at, len(items) - 1)])
            (loss if at < len(items) else loss * 0.0).backward()
            if at < len(items):
                ours.append((at, portable(report)))
    by_place = {at: report for of_rank in RANKS.to_all(ours) for at, report in of_rank}
    return [by_place[at] for at in range(len(items))]


def num_micro_batches_at_once(num_weights: int, num_items: int, device: torch.device, num_threads: int = 0) -> int:
    """Return how many of `num_items` micro-batches are computed side by side, for a model of `num_weights`."""
    return num_side_by_side(num_items, device, num_threads) if num_weights <= MOST_WEIGHTS else 1
