"""Decontamination: which parts of a text a benchmark holds too.

DeepSeekMath (arXiv:2402.03300, section 2.1) removes a text segment with a run of ten words that occurs in a benchmark;
benchmark texts of three to nine words count where they occur as a whole. Beside this rule, a problem of arithmetic is
found by its expression: `What is 45 × 77?` has no ten words, and may be asked in others.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from groupwise.recall.words import exact_words, is_ideograph

Gram = tuple[str, ...]
_EXPRESSION = re.compile(r"\d+(?:\s*[+\-×÷*/·−]\s*\d+)+")


class Rule(NamedTuple):
    """When a part of a text counts as a benchmark's."""

    size: int = 10
    """Words of a run that must be the same."""
    min_size: int = 3
    """Shorter benchmark texts than this are not looked for."""
    expressions: bool = True
    """Look for the arithmetical expressions of benchmark texts, too, with the operands of a product in either order."""


class Match(NamedTuple):
    """A part of a text that is in a benchmark."""

    segment: int
    """The paragraph in which it begins."""
    gram: str
    item: str
    """The benchmark's text."""
    why: str
    """`run`, `whole` or `expression`."""


class Index:
    """The n-grams of a benchmark's texts."""

    def __init__(self, items: Iterable[str], rule: Rule) -> None:
        self.rule = rule
        self._grams: dict[Gram, tuple[str, str]] = {}
        for item in items:
            for gram, why in _looked_for(item, rule):
                self._grams.setdefault(gram, (item, why))
        self._sizes = sorted({len(gram) for gram in self._grams})

    def __len__(self) -> int:
        return len(self._grams)

    def matches(self, segments: Sequence[str]) -> list[Match]:
        """All matches of a text given as its paragraphs; a run that crosses from one into the next counts in both."""
        words = [(word, number) for number, segment in enumerate(segments) for word in exact_words(segment)]
        return [match for size in self._sizes for match in self._of_size(words, size)]

    def _of_size(self, words: Sequence[tuple[str, int]], size: int) -> Iterator[Match]:
        plain = [word for word, _ in words]
        for start in range(len(words) - size + 1):
            gram = tuple(plain[start : start + size])
            if found := self._grams.get(gram):
                item, why = found
                for segment in range(words[start][1], words[start + size - 1][1] + 1):
                    yield Match(segment, " ".join(gram), item, why)


def _looked_for(item: str, rule: Rule) -> Iterator[tuple[Gram, str]]:
    """Every n-gram whose occurrence counts. A Chinese character counts as half a word."""
    words = exact_words(item)
    scale = 2 if sum(map(is_ideograph, words)) * 2 > len(words) else 1
    size = rule.size * scale
    if len(words) >= size:
        yield from ((tuple(words[start : start + size]), "run") for start in range(len(words) - size + 1))
    elif len(words) >= rule.min_size * scale:
        yield tuple(words), "whole"
    if rule.expressions:
        yield from ((gram, "expression") for gram in expressions(item))


def expressions(text: str) -> list[Gram]:
    """Arithmetical expressions in a text as words; of two factors or summands, in either order.

    >>> expressions("What is 45 × 77?")
    [('45', '×', '77'), ('77', '×', '45')]
    """
    found: list[Gram] = []
    for match in _EXPRESSION.finditer(text):
        gram = tuple(exact_words(match.group()))
        found.append(gram)
        if len(gram) == 3 and gram[1] in "×+":
            found.append(gram[::-1])
    return found
