r"""Where the answer stands in a completion: deterministic, linear in the length of the text, never a guess.

Only what follows the last `</think>` counts. Several different answers are no answer: a model that lists candidates
must not be paid for the one that fits.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from groupwise.verifiers.base import Extraction

_BRACES = re.compile(r"(?P<box>\\{1,2}(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_NUMBER = re.compile(r"(?<![0-9A-Za-z.])[-−]?[0-9][0-9,]{0,200}(?:\.[0-9]{1,200})?(?:/[0-9]{1,200})?%?")


@dataclass(frozen=True, slots=True)
class Extracted:
    """The answer as written, or why there is none."""

    answer: str | None
    reason: str
    """Why there is no answer; empty when there is one."""
    tags_right: bool
    """One `<think>`, one `</think>`, in order, then an answer."""


def extract(text: str, mode: Extraction) -> Extracted:
    """Read the answer from a completion (prefill included)."""
    region = after_thinking(text)
    if region is None:
        return Extracted(None, "<think> was opened and not closed", False)
    found = {"boxed": boxes, "tag": tags, "last_number": last_number}[mode](region)
    candidates = list(dict.fromkeys("".join(each.split()) for each in found))
    if not candidates or not candidates[-1]:
        return Extracted(None, f"no answer ({mode}) after the reasoning", False)
    if len(candidates) > 1:
        shown = ", ".join(repr(each[:40]) for each in candidates[:3])
        return Extracted(None, f"several answers: {shown}{', ...' if len(candidates) > 3 else ''}", False)
    return Extracted(found[-1].strip(), "", thought_once(text))


def after_thinking(text: str) -> str | None:
    """The text after the last `</think>`; all of it without tags; None while the reasoning is still open."""
    _, closed, rest = text.rpartition("</think>")
    region = rest if closed else text
    return None if "<think>" in region else region


def thought_once(text: str) -> bool:
    """True when exactly one `<think>` and one `</think>` stand in this order."""
    return text.count("<think>") == text.count("</think>") == 1 and text.index("<think>") < text.index("</think>")


def boxes(text: str) -> list[str]:
    r"""Contents of every complete outermost `\boxed{}` or `\fbox{}` (a doubled backslash is read as one), in order."""
    spans: list[tuple[int, int]] = []
    for start, end in _closed_boxes(text):
        while spans and spans[-1][0] > start:  # inside the box that has just been closed
            spans.pop()
        spans.append((start, end))
    return [text[start:end] for start, end in spans]


def _closed_boxes(text: str) -> Iterator[tuple[int, int]]:
    open_braces: list[int | None] = []  # where a box's content starts; None for a plain brace
    for token in _BRACES.finditer(text):
        if token["box"] or token["open"]:
            open_braces.append(token.end() if token["box"] else None)
        elif token["close"] and open_braces and (start := open_braces.pop()) is not None:
            yield start, token.start()


def tags(text: str) -> list[str]:
    """Contents of the `<answer>` tags; a tag within a tag makes them unequal to each other, hence several answers."""
    if text.count("<answer>") != text.count("</answer>"):
        return []
    return [content for found in _TAG.findall(text) for content in found.split("<answer>")]


def last_number(text: str) -> list[str]:
    """The last number anywhere, as a list of at most one."""
    last = ""
    for match in _NUMBER.finditer(text):
        last = match[0]
    return [last.rstrip(",")] if last else []
