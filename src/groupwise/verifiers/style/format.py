"""Whether a completion keeps the form that was asked for."""

import re

from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request
from groupwise.verifiers.parts import FormatPart

_TAG = re.compile(r"</?(?:think|answer)>")
THINKING = ["<think>", "</think>"]
ANSWERING = [*THINKING, "<answer>", "</answer>"]


def tag_format(request: Request, verdict: Verdict, part: FormatPart) -> float:
    """1 if the form is right, else 0.

    The tags stand once and in order; each pair holds a letter or a digit; nothing but the prompt's prefill stands
    before `<think>`, nothing outside `<answer>` where there is one; and the verifier could read an answer.
    """
    found = _TAG.findall(request.text)
    if found not in (THINKING, ANSWERING) or verdict.outcome is Outcome.UNPARSABLE:
        return 0.0
    before, thought, *rest = _TAG.split(request.text)
    *between, answer, after = rest if found == ANSWERING else [*rest, ""]
    is_bare = not (before[len(request.prefill) :] + "".join(between) + after).strip()
    return float(is_bare and _has_content(thought) and _has_content(answer))


def _has_content(text: str) -> bool:
    return any(character.isalnum() for character in text)
