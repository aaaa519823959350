"""Whether a completion keeps the required form."""

import re

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.parts import StylePart

_TAG = re.compile(r"</?(?:think|answer)>")
THINKING = ["<think>", "</think>"]
ANSWERING = [*THINKING, "<answer>", "</answer>"]


class FormatPart(StylePart):
    """1 for one `<think>` with content and an answer after it, and nothing else; 0 otherwise."""

    def measure(self, request: Request, verdict: Verdict) -> float:
        """1 if the form is right and the verifier could read an answer, else 0."""
        return float(verdict.outcome is not Outcome.UNPARSABLE and is_tagged(request.text, request.prefill))


def is_tagged(text: str, prefill: str) -> bool:
    """Whether a completion (prefill included) keeps the form.

    Each tag occurs once, in order; each pair holds a letter or a digit; nothing but the prompt's prefill comes before
    `<think>`, and nothing is outside `<answer>` where there is one.
    """
    tags = _TAG.findall(text)
    if tags not in (THINKING, ANSWERING):
        return False
    prefix, thought, *rest = _TAG.split(text)
    *gaps, answer, suffix = rest if tags == ANSWERING else [*rest, ""]
    is_bare = not (prefix[len(prefill) :] + "".join(gaps) + suffix).strip()
    return is_bare and _has_content(thought) and _has_content(answer)


def broken_tag(text: str) -> tuple[int, int] | None:
    """Span of the first tag that is never closed, was never opened or interrupts another; None if there is no such tag.

    >>> broken_tag("<think>2+2=4")
    (0, 7)
    """
    open_tag: re.Match[str] | None = None
    for tag in _TAG.finditer(text):
        closes = tag[0].startswith("</")
        is_right = (open_tag is not None and open_tag[0][1:] == tag[0][2:]) if closes else open_tag is None
        if not is_right:
            return tag.span()
        open_tag = None if closes else tag
    return open_tag.span() if open_tag else None


def _has_content(text: str) -> bool:
    return any(character.isalnum() for character in text)
