"""Randomness without state: every draw is a pure function of a key and a position.

A key is made from what the draw is for, for example `key(seed, "sample", step, problem_id, sample_index)`; the
position counts the draws under that key (the token position, for sampling). There is no generator state to save,
so batch size, worker count, resume and replay cannot change what is drawn.

The hash is splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), in numpy.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def key(*parts: int | str) -> int:
    """Return a 64-bit key. Types and boundaries of parts count: key(1, 23), key(12, 3) and key("1", 23) all differ."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def bits(keys: ArrayLike, positions: ArrayLike) -> NDArray[np.uint64]:
    """Return 64 random bits for each (key, position); the two broadcast."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        z = np.asarray(keys, np.uint64) + (np.asarray(positions, np.uint64) + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)


def uniforms(keys: ArrayLike, positions: ArrayLike) -> NDArray[np.float64]:
    """Return numbers in [0, 1) with 53 random bits, one for each (key, position); the two broadcast."""
    return np.asarray((bits(keys, positions) >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def permutation(length: int, *parts: int | str) -> NDArray[np.int64]:
    """Return a random order of 0 .. length-1 under key(*parts)."""
    return np.argsort(bits(key(*parts), np.arange(length)), kind="stable")


def shuffled_epochs(length: int, size: int, step: int, *parts: int | str) -> list[int]:
    """Return the indices of a step of `size` from shuffled epochs that follow one another, a pure function.

    Every index occurs once in an epoch; a step may end one and begin the next.
    """
    positions = range(step * size, (step + 1) * size)
    epochs = {position // length for position in positions}
    order = {epoch: permutation(length, *parts, epoch) for epoch in epochs}
    return [int(order[position // length][position % length]) for position in positions]


class Purpose(StrEnum):
    """The use of sampled completions; it keeps the draws of different uses apart."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"
    SAMPLE = "sample"
    """`groupwise sample`."""
    DISTILL = "distill"
    REJECTION = "rejection"
    """Rejection sampling."""
    COLD_START = "cold start"
    STEP_LABELS = "step labels"
    PREFLIGHT = "preflight"
    """Samples of a preflight, before a run."""


@dataclass(frozen=True, slots=True)
class Draws:
    """The random keys of completions: one for each problem and sample."""

    seed: int
    purpose: Purpose
    step: int = 0
    detail: str = ""
    """Tells uses of one purpose apart, for example the source of cold-start data."""

    @property
    def name(self) -> str:
        return f"{self.purpose} {self.detail}" if self.detail else self.purpose.value

    def keys(self, problem_id: str, num_samples: int) -> tuple[int, ...]:
        """Return the key of each completion; the draw of a token is a function of this key and the token's position."""
        return tuple(key(self.seed, self.name, self.step, problem_id, sample) for sample in range(num_samples))

    def key_after(self, what: str, problem_id: str, sample: int) -> int:
        """Return the key of what is sampled after text that was put into a completion; `what` names that text."""
        return key(self.seed, self.name, what, problem_id, sample)


class Draw:
    """Successive draws under one key, for code that generates problems and text.

    >>> Draw("example", 7).integer(1, 6) == Draw("example", 7).integer(1, 6)
    True
    """

    def __init__(self, *parts: int | str) -> None:
        self._key = key(*parts)
        self._position = 0

    def uniform(self) -> float:
        """Return a number in [0, 1)."""
        # `bits` of one key and position in plain integers: a tenth of numpy's time for a single number
        z = (self._key + (self._position + 1) * int(_GOLDEN)) & _MASK
        z = ((z ^ (z >> 30)) * int(_MIX_1)) & _MASK
        z = ((z ^ (z >> 27)) * int(_MIX_2)) & _MASK
        value = ((z ^ (z >> 31)) >> 11) * 2.0**-53
        self._position += 1
        return value

    def integer(self, low: int, high: int) -> int:
        """Return an integer in low .. high, both included."""
        return low + int(self.uniform() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """Return one of the options, as likely as its weight."""
        remaining = self.uniform() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            remaining -= weight
            if remaining < 0:
                return option
        return options[-1]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        order = sorted((self.uniform(), index) for index in range(len(options)))
        return [options[index] for _, index in order]
