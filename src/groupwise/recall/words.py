"""A text as words, and n-grams of words as numbers."""

import re
import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import key

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[^\W\d_{_IDEOGRAPH}]+|\d+|[{_IDEOGRAPH}]|[^\s\w]|_")
_PLAIN = re.compile(rf"[^\W\d_{_IDEOGRAPH}]+|\d+|[{_IDEOGRAPH}]")
_SIGN = re.compile(r"[+\-×÷*/=<>^−·]")
_SAME_SIGN = {"*": "×", "·": "×", "−": "-", "/": "÷"}
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xBF58476D1CE4E5B9)


def words(text: str, symbols: bool = True) -> list[str]:
    r"""Words as a classifier reads them: small letters, numbers by their length alone, one word per other character.

    >>> words("What is 23 × 170? \\frac{a}{b}")[:6]
    ['what', 'is', '00', '×', '000', '?']
    >>> words("23 × 170?", symbols=False)
    ['00', '000']
    """
    found = (_WORD if symbols else _PLAIN).findall(text.lower())
    return ["0" * min(4, len(word)) if word.isdigit() else word for word in found]


def exact_words(text: str) -> list[str]:
    """Words as copies share them: one form of every letter and sign, numbers as they are, punctuation left out.

    >>> exact_words("WHAT is  ４５ * 77?"), exact_words("小明有5个")
    (['what', 'is', '45', '×', '77'], ['小', '明', '有', '5', '个'])
    """
    found = _WORD.findall(unicodedata.normalize("NFKC", text).lower())
    signs = (_SAME_SIGN.get(word, word) for word in found)
    return [word for word in signs if word.isalnum() or _SIGN.fullmatch(word)]


def is_ideograph(word: str) -> bool:
    """Whether a word is one Chinese character."""
    return len(word) == 1 and re.fullmatch(f"[{_IDEOGRAPH}]", word) is not None


@lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
    return key("word", word)


def ngrams(text: list[str], size: int) -> NDArray[np.uint64]:
    """(max(0, T - size + 1),) 64-bit hash of every run of `size` words, in order.

    Two runs have the same hash if they are the same words, and otherwise with probability 2^-64.
    """
    hashes = np.array([_hash(word) for word in text], np.uint64)
    count = len(hashes) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        total = np.zeros(count, np.uint64)
        for offset in range(size):
            total = mixed(total * _STEP + hashes[offset : offset + count])
    return total


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of a value spread over all bits: one round of splitmix64's finish."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * _SPREAD
        return np.asarray(values ^ (values >> np.uint64(27)), np.uint64)


def features(text: list[str], longest: int, buckets: int) -> NDArray[np.int64]:
    """(M,) sorted buckets of a text's n-grams of 1 to `longest` words, each once (the hashing trick)."""
    found = [ngrams(text, size) % np.uint64(buckets) for size in range(1, longest + 1)]
    return np.unique(np.concatenate(found)).astype(np.int64)
