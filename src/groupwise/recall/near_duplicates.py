"""Near copies by MinHash: pages that share most of their n-grams agree in a band of minima (Broder 1997)."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import bits, key
from groupwise.recall.words import mixed

BLOCK = 4096
"""n-grams that are looked at together."""


def signature(grams: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """(size,) minima of the n-grams under as many random orders; a text without n-grams has none (empty).

    Two texts agree in each place with the probability that is their Jaccard similarity.
    """
    if not len(grams):
        return np.zeros(0, np.uint64)
    orders = bits(key("minhash"), np.arange(size))
    parts = np.split(grams, range(BLOCK, len(grams), BLOCK))  # a page of a million words must not take a gigabyte
    minima = [mixed(part[:, None] ^ orders[None, :]).min(axis=0) for part in parts]
    return np.asarray(np.min(minima, axis=0))


def agreement(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> float:
    """Share of places in which two signatures agree: an estimate of the Jaccard similarity."""
    return float((left == right).mean()) if len(left) and len(right) else 0.0


def duplicates(signatures: Sequence[NDArray[np.uint64]], bands: int, min_agreement: float) -> dict[int, int]:
    """By the index of every later copy, that of the text it is a copy of.

    Candidates agree in all rows of one of the bands. A candidate is a copy of the first kept text with which its whole
    signature agrees well enough: copies of copies are compared with what is kept, so no chain of small changes makes
    two different texts one.
    """
    first: dict[tuple[int, bytes], list[int]] = {}
    found: dict[int, int] = {}
    for index, one in enumerate(signatures):
        keys = [(band, part.tobytes()) for band, part in enumerate(_bands(one, bands))]
        candidates = sorted({other for name in keys for other in first.get(name, ())})
        original = next((other for other in candidates if agreement(one, signatures[other]) >= min_agreement), None)
        if original is not None:
            found[index] = original
            continue
        for name in keys:
            first.setdefault(name, []).append(index)
    return found


def _bands(one: NDArray[np.uint64], bands: int) -> Iterable[NDArray[np.uint64]]:
    return np.split(one, bands) if len(one) else ()


def chance(similarity: float, bands: int, rows: int) -> float:
    """Probability that two texts of this Jaccard similarity are candidates: 1 - (1 - s^rows)^bands.

    >>> round(chance(0.8, 14, 8), 3), round(chance(0.5, 14, 8), 3)
    (0.924, 0.053)
    """
    return float(1 - (1 - similarity**rows) ** bands)
