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

MOST_WEIGHTS = 1 << 26
"""Largest model whose micro-batches are computed side by side: each of them holds a gradient of its own meanwhile, and
the products of a larger one are long enough to be split over cores."""


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
        compute: the loss of an item, a scalar, and what else is to be known of it. It runs in another thread where
            items are computed side by side, so it changes nothing outside itself.
        items: micro-batches.
        weights: all that has a gradient.
        device: of the weights.
        costs: tokens of each item, by which ranks get items of about one size at a time.

    Yields:
        What `compute` gave beside each loss, once its gradient is added.
    """
    if RANKS.are_sums_fixed:
        order = sorted(range(len(items)), key=lambda i: -costs[i]) if costs else list(range(len(items)))
        chosen = [items[i] for i in order]
        found = _on_ranks(compute, chosen) if RANKS.size > 1 else _in_rounds(compute, chosen, weights, device)
        yield from (report for _, report in sorted(zip(order, found, strict=True), key=lambda pair: pair[0]))
        return
    if num_micro_batches_at_once(sum(map(Tensor.numel, weights)), len(items), device) < 2:
        for item in items:
            loss, report = compute(item)
            loss.backward()
            yield report
        return

    for gradients, report in in_threads(_differentiate(compute, weights), items, device):
        _add(gradients, weights)
        yield report


Gradients = Sequence[Tensor | None]
"""One for each weight; None where it has no part in the loss."""


def _differentiate(
    compute: Callable[[T], tuple[Tensor, R]], weights: Sequence[Tensor]
) -> Callable[[T], tuple[Gradients, R]]:
    def differentiate(item: T) -> tuple[Gradients, R]:
        loss, report = compute(item)
        return torch.autograd.grad(loss, weights, allow_unused=True), report

    return differentiate


def _add(gradients: Gradients, weights: Sequence[Tensor]) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            gradient = gradient.to(weight.grad_dtype)  # fp32 where the optimizer keeps masters
            weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)


def _in_rounds(
    compute: Callable[[T], tuple[Tensor, R]], items: Sequence[T], weights: Sequence[Tensor], device: torch.device
) -> list[R]:
    """In one process, what ranks would compute. Neighbours are added as soon as both are there, so few wait."""
    differentiate = _differentiate(compute, weights)
    many = num_micro_batches_at_once(sum(map(Tensor.numel, weights)), len(items), device) > 1
    found = in_threads(differentiate, items, device) if many else map(differentiate, items)
    waiting: list[tuple[int, Gradients]] = []  # sums of 1, 2, 4, ... neighbours, each with the power
    reports = []
    for i, (gradients, report) in enumerate(found, 1):
        waiting.append((0, gradients))
        is_last = i % RANKS.partial_sums == 0 or i == len(items)
        while len(waiting) > 1 and (is_last or waiting[-1][0] == waiting[-2][0]):
            (_, right), (power, left) = waiting.pop(), waiting.pop()
            waiting.append((power + 1, _sums(left, right)))
        if is_last:
            _add(waiting.pop()[1], weights)
        reports.append(report)
    return reports


def _sums(left: Gradients, right: Gradients) -> Gradients:
    return [b if a is None else a if b is None else a + b for a, b in zip(left, right, strict=True)]


def _on_ranks(compute: Callable[[T], tuple[Tensor, R]], items: Sequence[T]) -> list[R]:
    """Every rank takes its places of every round; where no item is left for one, the loss of another weighs nothing."""
    RANKS.agree("the number of micro-batches", len(items))
    own: list[tuple[int, R]] = []
    places = RANKS.partial_sums // RANKS.size
    for first in range(0, len(items), RANKS.partial_sums):
        for place in range(places):
            at = first + RANKS.rank * places + place
            reduce_gradients(now=place == places - 1)
            loss, report = compute(items[min(at, len(items) - 1)])
            (loss if at < len(items) else loss * 0.0).backward()
            if at < len(items):
                own.append((at, portable(report)))
    by_place = {at: report for of_one in RANKS.to_all(own) for at, report in of_one}
    return [by_place[at] for at in range(len(items))]


def num_micro_batches_at_once(num_weights: int, num_items: int, device: torch.device, num_threads: int = 0) -> int:
    """How many of so many micro-batches are computed side by side, for a model of so many weights."""
    return num_side_by_side(num_items, device, num_threads) if num_weights <= MOST_WEIGHTS else 1
