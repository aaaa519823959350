"""Cutting a batch into micro-batches by a token budget. Remainders are legal: the denominator is global."""

from collections.abc import Iterator, Sequence


def micro_batches(num_tokens: Sequence[int], budget: int) -> Iterator[range]:
    """Consecutive ranges of items whose tokens sum to at most the budget; an item over the budget stands alone.

    >>> [list(chunk) for chunk in micro_batches([5, 5, 20, 1], budget=10)]
    [[0, 1], [2], [3]]
    """
    start, total = 0, 0
    for index, count in enumerate(num_tokens):
        if index > start and total + count > budget:
            yield range(start, index)
            start, total = index, 0
        total += count
    if start < len(num_tokens):
        yield range(start, len(num_tokens))
