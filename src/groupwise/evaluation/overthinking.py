r"""Overthinking: what a correct completion still writes after it first reached the correct value.

Source: Chen et al. 2024, arXiv:2412.21187, whose outcome efficiency is 1 - after / all. There a model splits the text
into solutions; here the value is looked for: a result stands right after an equals sign, `\boxed{`, `<answer>` or a
word that announces it ("is", "得"), and no calculation follows it.
"""

import re
from collections.abc import Iterator

from groupwise.runs.row import Row
from groupwise.types import Outcome
from groupwise.verifiers.math.numbers import Number, equal, parse_number

_ANNOUNCED = re.compile(
    r"(?:[=≈＝:：→]|\\(?:boxed|fbox|approx|text)\s*\{|<answer>|\b(?:is|are|be|gives?|get|equals?|makes?|answer|total)"
    r"|是|为|得|到|等于|共|有|剩)[\s$({*]*\Z",
    re.IGNORECASE,
)
# a dash before a word, or on a new line, is not an arithmetic sign
_GOES_ON = re.compile(r"[ \t]*(?:[-−+*/×÷^·]|\\(?:times|cdot|div))[ \t]*(?:[0-9(\\]|[a-zA-Z](?![a-zA-Z]))")
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[-−]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:/[0-9]+)?%?(?![0-9])")
_WINDOW = 40
"""Characters before a value in which its announcement stands."""


def first_value(text: str, reference: str) -> int | None:
    """Where the first correct value that is a result ends, in characters; None where there is none.

    A plain number is compared by value (`4,042` is 4042), anything else letter by letter.

    >>> first_value("4042? 3760+282=4042. Wait,", "4042")
    19
    """
    number = parse_number(reference)
    for start, end in _numbers(text, number) if number else _copies(text, reference):
        if _ANNOUNCED.search(text[max(0, start - _WINDOW) : start]) and not _GOES_ON.match(text, end):
            return end
    return None


def tokens_after_first(row: Row) -> float | None:
    """Tokens of a correct completion after the first place where the correct value appears as a result.

    None for other completions, and where the value never appears (the answer has another form than the reference).
    Reports do not load tokens: the figure is the share of characters that follow, times the number of tokens.
    """
    end = first_value(row.text, row.reference) if row.outcome is Outcome.CORRECT else None
    return None if end is None else float(row.length * (len(row.text) - end) / len(row.text))


def _numbers(text: str, reference: Number) -> Iterator[tuple[int, int]]:
    for match in _NUMBER.finditer(text):
        number = parse_number(match[0].replace("−", "-"))
        if number is not None and equal(reference, number):
            yield match.span()


def _copies(text: str, reference: str) -> Iterator[tuple[int, int]]:
    """Where the reference occurs with no letter or digit next to it."""
    for match in re.finditer(rf"(?<![A-Za-z0-9]){re.escape(reference)}(?![A-Za-z0-9])", text):
        yield match.span()
