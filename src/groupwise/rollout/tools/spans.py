"""Where a written text has results of tools: what supervised fine-tuning reads and does not train."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from groupwise.rollout.tools.base import Fault, Seen, Tool, first_call

Span = tuple[int, int]


class BrokenCallError(ValueError):
    """A text with a call that breaks its tool's rules."""


class Result(NamedTuple):
    """A result in a text."""

    seen: Seen
    """The call before it."""
    span: Span
    """(begin, end) in characters, the marks around it included."""


def put_in_spans(text: str, tools: Mapping[str, Tool]) -> list[Span]:
    """The spans of every result in a text, in order.

    Raises:
        BrokenCallError: a call breaks its tool's rules; says where and how.
    """
    return [result.span for result in results_in(text, tools)]


def results_in(text: str, tools: Mapping[str, Tool]) -> Iterator[Result]:
    """Every result in a text, in order. A text that is cut off within a result has it up to its end.

    Raises:
        BrokenCallError: a call breaks its tool's rules; says where and how.
    """
    at = begin = 0
    closes = frozenset("".join(tool.closes for tool in tools.values()))
    while at < len(text):
        at += 1
        if text[at - 1] not in closes:
            continue
        found = first_call(text[begin:at], tools)
        if isinstance(found, Fault):
            raise BrokenCallError(f"{found.reason}, at character {at}: {text[max(0, at - 40) : at]!r}")
        if found is not None:
            call = found.call
            end = text.find(call.closing, at + len(call.opening))
            end = len(text) if end < 0 else end + len(call.closing)
            yield Result(found, (at, end))
            at = begin = end
