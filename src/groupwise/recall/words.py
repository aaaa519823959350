"""Words of a text, n-grams of words as numbers, and near copies.

Pages that share most of their n-grams agree in a band of minima of their hashes (MinHash: Broder 1997).

Decontamination: parts of a text that a benchmark holds too.

DeepSeekMath (arXiv:2402.03300, section 2.1) removes a text segment with a run of ten words that occurs in a benchmark;
benchmark texts of three to nine words count where they occur as a whole. Beside this rule, a problem of arithmetic is
found by its expression: `What is 45 × 77?` has no ten words, and may be asked in others. What reads as a fraction, a
range or a date (`1/2`, `3-5`, `2024-11-25`) occurs in texts of every kind and tells nothing.

Problems that were written from one pattern share runs of ten words, and differ in their numbers: they are others.
So a run counts only where the numbers around it in the benchmark's text are around it on the page, too. A run of
twice as many words always counts.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.randomness import bits, key, permutation

_IDEOGRAPH = "\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[^\W\d_{_IDEOGRAPH}]+|\d+|[{_IDEOGRAPH}]|[^\s\w]|_")
_PLAIN = re.compile(rf"[^\W\d_{_IDEOGRAPH}]+|\d+|[{_IDEOGRAPH}]")
_SIGN = re.compile(r"[+\-×÷*/=<>^−·]")
_SAME_SIGN = {"*": "×", "·": "×", "−": "-", "/": "÷"}
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SPREAD = np.uint64(0xBF58476D1CE4E5B9)
_BLOCK = 4096
"""n-grams whose minima are computed together: a page of a million words must not take a gigabyte."""


def words(text: str, symbols: bool = True) -> list[str]:
    r"""Split a text into a classifier's words: small letters, the length of numbers, one word per other character.

    >>> words("What is 23 × 170? \\frac{a}{b}")[:6]
    ['what', 'is', '00', '×', '000', '?']
    >>> words("23 × 170?", symbols=False)
    ['00', '000']
    """
    found = (_WORD if symbols else _PLAIN).findall(text.lower())
    return ["0" * min(4, len(word)) if word.isdigit() else word for word in found]


def exact_words(text: str) -> list[str]:
    """Split a text into the words that copies share: one form of letters and signs, no punctuation.

    >>> exact_words("WHAT is  ４５ * 77?"), exact_words("小明有5个")
    (['what', 'is', '45', '×', '77'], ['小', '明', '有', '5', '个'])
    """
    signs = (_SAME_SIGN.get(word, word) for word in _WORD.findall(unicodedata.normalize("NFKC", text).lower()))
    return [word for word in signs if word.isalnum() or _SIGN.fullmatch(word)]


def is_ideograph(word: str) -> bool:
    """Return True for a word of one Chinese character."""
    return len(word) == 1 and re.fullmatch(f"[{_IDEOGRAPH}]", word) is not None


_hash = lru_cache(maxsize=1 << 18)(partial(key, "word"))


def ngrams(text: list[str], size: int) -> NDArray[np.uint64]:
    """(max(0, T - size + 1),) 64-bit hash of every run of `size` words, in order."""
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
    """Spread every bit of a value over all bits: one round of splitmix64's finish."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * _SPREAD
        return np.asarray(values ^ (values >> np.uint64(27)), np.uint64)


def features(text: list[str], longest: int, buckets: int) -> NDArray[np.int64]:
    """(M,) sorted buckets of a text's n-grams of 1 to `longest` words, each once (the hashing trick)."""
    found = [ngrams(text, size) % np.uint64(buckets) for size in range(1, longest + 1)]
    return np.unique(np.concatenate(found)).astype(np.int64)


def signature(grams: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """(size,) minima of the n-grams under as many random orders; empty for a text without n-grams.

    Two texts agree in each place with the probability that is their Jaccard similarity.
    """
    if not len(grams):
        return np.zeros(0, np.uint64)
    orders = bits(key("minhash"), np.arange(size))
    parts = np.split(grams, range(_BLOCK, len(grams), _BLOCK))
    minima = [mixed(part[:, None] ^ orders[None, :]).min(axis=0) for part in parts]
    return np.asarray(np.min(minima, axis=0))


def agreement(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> float:
    """Return the share of places in which two signatures agree: an estimate of the Jaccard similarity."""
    return float((left == right).mean()) if len(left) and len(right) else 0.0


def duplicates(signatures: Sequence[NDArray[np.uint64]], bands: int, min_agreement: float) -> dict[int, int]:
    """Map the index of every later copy to that of the first kept text whose whole signature agrees well enough."""
    first, copies = dict[tuple[int, bytes], list[int]](), dict[int, int]()
    for index, text in enumerate(signatures):
        keys = [(band, part.tobytes()) for band, part in enumerate(np.split(text, bands) if len(text) else ())]
        candidates = sorted({other for name in keys for other in first.get(name, ())})
        original = next((other for other in candidates if agreement(text, signatures[other]) >= min_agreement), None)
        if original is not None:
            copies[index] = original
            continue
        for name in keys:
            first.setdefault(name, []).append(index)
    return copies


Texts = Sequence[NDArray[np.int64]]


class Descent(NamedTuple):
    """Settings of the training."""

    buckets: int
    min_count: int
    lr: float
    """First rate; it falls linearly to 0 at the last text of the last epoch."""
    epochs: int
    seed: int


class Linear(NamedTuple):
    """Weights of a classifier."""

    weights: NDArray[np.float64]
    """(buckets,)"""
    bias: float

    def scores(self, texts: Texts) -> NDArray[np.float64]:
        """Return the (B,) probability of each text to be positive; without n-grams that of the bias."""
        return np.asarray(sigmoid(np.array([self.logit(text) for text in texts])))

    def logit(self, text: NDArray[np.int64]) -> float:
        return self.bias + (float(self.weights[text].sum()) / np.sqrt(len(text)) if len(text) else 0.0)


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -values)))


def slope(model: Linear, text: NDArray[np.int64], label: bool, weight: float = 1.0) -> float:
    """Return the derivative of the weighted negative log-likelihood of a label by the logit and by the bias.

    That by a weight of the text is this / sqrt(M).
    """
    return weight * (float(sigmoid(np.array(model.logit(text)))) - label)


def train(texts: Texts, labels: Sequence[bool], how: Descent) -> Linear:
    """Train on texts and their labels (True: positive); both classes have the same total weight."""
    known = np.bincount(np.concatenate([*texts, np.zeros(0, np.int64)]), minlength=how.buckets) >= how.min_count
    kept = [text[known[text]] for text in texts]
    positive = max(1, sum(labels))
    of_class = {True: len(labels) / (2 * positive), False: len(labels) / (2 * max(1, len(labels) - positive))}
    weights, bias, step, total = np.zeros(how.buckets), 0.0, 0, how.epochs * len(texts)
    for epoch in range(how.epochs):
        for index in permutation(len(texts), "classifier", how.seed, epoch).tolist():
            text, label = kept[index], bool(labels[index])
            change = how.lr * (1 - step / total) * slope(Linear(weights, bias), text, label, of_class[label])
            if len(text):
                weights[text] -= change / np.sqrt(len(text))
            bias -= change
            step += 1
    return Linear(weights, bias)


Gram = tuple[str, ...]
_EXPRESSION = re.compile(r"\d+(?:\s*[+\-×÷*/·−]\s*\d+)+")
_FRACTION_RANGE_OR_DATE = re.compile(r"\d+(?:[-/]\d+)+")


class Rule(NamedTuple):
    """Conditions under which a part of a text counts as a benchmark's."""

    size: int = 10
    min_size: int = 3
    """Benchmark texts of fewer words than this are not looked for; signs are no words."""
    expressions: bool = True
    numbers: bool = True


class Match(NamedTuple):
    """A part of a text that is in a benchmark."""

    segment: int
    gram: str
    item: str
    why: str


class Sought(NamedTuple):
    """An n-gram whose occurrence counts, and its origin."""

    gram: Gram
    item: str
    why: str
    numbers: frozenset[str] = frozenset()


class Index:
    """The n-grams of a benchmark's texts."""

    def __init__(self, items: Iterable[str], rule: Rule) -> None:
        self._sought = defaultdict[Gram, list[Sought]](list)
        for item in items:
            for sought in _sought(item, rule):
                self._sought[sought.gram].append(sought)

    def __len__(self) -> int:
        return len(self._sought)

    def matches(self, segments: Sequence[str]) -> list[Match]:
        words = [(word, number) for number, segment in enumerate(segments) for word in exact_words(segment)]
        plain, matches = [word for word, _ in words], list[Match]()
        for size in sorted({len(gram) for gram in self._sought}):
            for start in range(len(words) - size + 1):
                gram = tuple(plain[start : start + size])
                if not (known := self._sought.get(gram)):
                    continue
                near = plain[max(0, start - 3 * size) : start + 4 * size]
                numbers = set[str]()
                if any(sought.numbers for sought in known):
                    groups = [list(group) for is_number, group in groupby(near, str.isdigit) if is_number]
                    spans = ((g, a, b) for g in groups for a in range(len(g)) for b in range(a + 1, len(g) + 1))
                    numbers = {"".join(group[a:b]) for group, a, b in spans}
                if first := next((sought for sought in known if sought.numbers.issubset(numbers)), None):
                    for segment in range(words[start][1], words[start + size - 1][1] + 1):
                        matches.append(Match(segment, " ".join(gram), first.item, first.why))
        return matches


def _sought(item: str, rule: Rule) -> Iterator[Sought]:
    words = exact_words(item)
    scale = 2 if sum(map(is_ideograph, words)) * 2 > len(words) else 1
    size = rule.size * scale
    if len(words) >= size:
        yield from _runs(item, words, size, rule.numbers)
        if rule.numbers:
            yield from _runs(item, words, 2 * size, numbers=False)
    elif sum(map(str.isalnum, words)) >= rule.min_size * scale:
        yield Sought(tuple(words), item, "whole")
    if rule.expressions:
        yield from (Sought(gram, item, "expression") for gram in expressions(item))


def _runs(item: str, words: Sequence[str], size: int, numbers: bool) -> Iterator[Sought]:
    for start in range(len(words) - size + 1):
        near = words[max(0, start - 2 * size) : start + 3 * size] if numbers else ()
        groups = (group for is_number, group in groupby(near, str.isdigit) if is_number)  # `1,000` is `1000`
        yield Sought(tuple(words[start : start + size]), item, "run", frozenset(map("".join, groups)))


def expressions(text: str) -> list[Gram]:
    """Return the arithmetical expressions in a text as words; of two factors or summands, in either order.

    >>> expressions("What is 45 × 77?")
    [('45', '×', '77'), ('77', '×', '45')]
    >>> expressions("On 2024-11-25 she gave 1/2 of 7 + 8")
    [('7', '+', '8'), ('8', '+', '7')]
    """
    found: list[Gram] = []
    for match in _EXPRESSION.finditer(text):
        if _FRACTION_RANGE_OR_DATE.fullmatch(match.group()):
            continue
        gram = tuple(exact_words(match.group()))
        found.append(gram)
        if len(gram) == 3 and gram[1] in "×+":
            found.append(gram[::-1])
    return found
