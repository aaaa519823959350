"""Text of a tool before it becomes part of a completion: no control token, no mark of an answer.

Characters are replaced, never removed: what stands around them cannot join to a new mark.
"""

import re
from collections.abc import Iterable

_MARKS = (
    (re.compile(r"\\+(?=(?:boxed|fbox)\b)"), "/"),
    (re.compile(r"<+(?=/?(?:think|answer)\b)"), "("),
    (re.compile(r"`{3,}"), "``"),
    (re.compile(r"#{4,}"), "##"),
)
"""The beginnings of boxes, tags, fences and GSM8K's final answers, and what they become."""
_STANDS_FOR = "?!._-"


def without_answers(text: str) -> str:
    r"""The text without marks of an answer or of a fence.

    >>> without_answers(r"\boxed{5}</think>")
    '/boxed{5}(/think>'
    """
    for mark, replacement in _MARKS:
        text = mark.sub(replacement, text)
    return text


def without_controls(text: str, controls: Iterable[str]) -> str:
    """The text in which no control token is spelt: each one's first character becomes another."""
    spelt = sorted((mark for mark in controls if mark), key=len, reverse=True)
    other = next((c for c in _STANDS_FOR if not any(c in mark for mark in spelt)), " ")
    for mark in spelt:
        text = text.replace(mark, other + mark[1:])
    return text
