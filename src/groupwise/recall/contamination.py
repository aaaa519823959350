"""Decontamination: parts of a text that a benchmark holds too.

DeepSeekMath (arXiv:2402.03300, section 2.1) removes a text segment with a run of ten words that occurs in a benchmark;
benchmark texts of three to nine words count where they occur as a whole. Beside this rule, a problem of arithmetic is
found by its expression: `What is 45 × 77?` has no ten words, and may be asked in others. What reads as a fraction, a
range or a date (`1/2`, `3-5`, `2024-11-25`) occurs in texts of every kind and tells nothing.

Problems that were written from one pattern share runs of ten words, and differ in their numbers: they are others.
So a run counts only where the numbers around it in the benchmark's text are around it on the page, too. A run of
twice as many words always counts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from groupwise.recall.words import exact_words, is_ideograph

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
