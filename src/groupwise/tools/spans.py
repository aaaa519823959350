"""Where a written text has results of tools: what supervised fine-tuning reads and does not train."""

from collections.abc import Mapping

from groupwise.tools.base import Call, Fault, Tool

Span = tuple[int, int]


def put_in_spans(text: str, tools: Mapping[str, Tool]) -> list[Span]:
    """(begin, end) of every result in a text, in characters, the marks around it included; in order.

    A text that is cut off within a result has it up to its end.

    Raises:
        ValueError: a call breaks its tool's rules; says where and how.
    """
    spans: list[Span] = []
    at = begin = 0
    closes = frozenset("".join(tool.closes for tool in tools.values()))
    while at < len(text):
        at += 1
        if text[at - 1] not in closes:
            continue
        found = _found(text[begin:at], tools)
        if isinstance(found, Fault):
            raise ValueError(f"{found.reason}, at character {at}: {text[max(0, at - 40) : at]!r}")
        if found is not None:
            end = text.find(found.closing, at + len(found.opening))
            end = len(text) if end < 0 else end + len(found.closing)
            spans.append((at, end))
            at = begin = end
    return spans


def _found(text: str, tools: Mapping[str, Tool]) -> Call | Fault | None:
    for tool in tools.values():
        if (found := tool.look(text)) is not None:
            return found
    return None
