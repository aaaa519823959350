r"""Answers read as structures: lists, tuples and intervals, unions, matrices, equations; at the leaves, expressions.

Parsers of LaTeX lose what matters here (the order of a tuple, a repeated element, half of a false chain), so the
structure is read from the normalised text, and only single expressions are left to them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Literal

from groupwise.verifiers.math.normalise import outer
from groupwise.verifiers.math.numbers import parse_number

MAX_SIGNS = 3
r"""Independent signs `\pm` in one element."""

_AND = re.compile(r"\\text ?\{[ ,]*(?:and|or)[ ,]*\}")
_BARE_AND = re.compile(r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee)(?![a-zA-Z])")
_GROUPED = re.compile(r"(?<![0-9,.])[0-9]{1,3}(?:,[0-9]{3})+(?!,?[0-9])")
_EQUALS = re.compile(r"(?<![\\<>!=:])=(?!=)|\\approx(?![a-zA-Z])|\\in(?![a-zA-Z])")
_COLON, _CUP = re.compile(":"), re.compile(r"\\cup(?![a-zA-Z])")
_MATRIX = re.compile(
    r"[(\[]? ?\\begin ?\{(?P<kind>[pb]?matrix|array)\} ?(?:\{[lcr| ]*\})?(?P<body>.*)\\end ?\{(?P=kind)\} ?[)\]]?"
)
_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-zA-Z])")
_BUILDER = re.compile(r"(?P<name>[A-Za-z](?:_[0-9a-z])?) ?(?:\\in ?\\mathbb ?\{R\} ?)?[|:](?P<condition>.*)")
_SCRIPT = r"(?:_(?:[0-9A-Za-z]|\{[^{}]*\})|')*"
_CAPITALS = rf"[A-Z]{_SCRIPT}(?: ?[A-Z]{_SCRIPT})*"
_LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|rho|sigma|tau|phi|omega|ell|epsilon))"
_NAME = re.compile(
    rf"{_LETTER}{_SCRIPT}(?:\^ ?\{{ ?-1 ?\}})?(?: ?\([^()=]{{1,40}}\))?"
    rf"|{_CAPITALS}(?: ?[:/] ?{_CAPITALS})?|\|[A-Za-z ]{{1,9}}\|"
    r"|\\(?:angle|triangle|overline|vec|hat|bar|mathbf)(?![a-z]) ?\{?[A-Za-z ]{1,9}\}?"
    rf"|\\text ?\{{[A-Za-z .]{{1,40}}\}}{_SCRIPT}|[A-Za-z]{{3,20}}"
)
_NAMES = re.compile(rf"\(? ?{_LETTER}{_SCRIPT}(?:\([a-z]\))?(?: ?, ?{_LETTER}{_SCRIPT}(?:\([a-z]\))?)+ ?\)?")
_OPEN, _CLOSE = "([{", ")]}"

Kind = Literal["expression", "list", "tuple", "union", "matrix", "equation"]


@dataclass(frozen=True, slots=True)
class Node:
    r"""One level of an answer.

    - `expression`: a leaf, relations such as `x > 3` included.
    - `list`: elements without order (`1, 2`, `1 or 2`, `\{1, 2\}`, `\pm 1`); its label is `{}` when they are in braces.
    - `tuple`: a tuple, point or interval; its label is the two brackets; of a ratio `a : b : c` it is `::`.
    - `union`: sets joined by `\cup`.
    - `matrix`: its elements row by row; its label is its shape, `2x3`.
    - `equation`: the links `b`, `c` of `a = b = c` or `a \in b`, whose label `a` is a name; without a name all links.
    """

    kind: Kind
    text: str
    items: tuple["Node", ...] = ()
    label: str = ""
    rounded: tuple["Node", ...] = ()
    r"""Of an equation: what stands after `\approx`."""


@lru_cache(maxsize=2048)
def read(text: str) -> Node:
    """The structure of a normalised answer."""
    text = _ungrouped(_listed(text).strip())
    if parse_number(text) is None:
        for reader in _READERS:
            node = reader(text)
            if node is not None:
                return node
    return Node("expression", text)


def names(nodes: tuple[Node, ...]) -> set[str]:
    """The names that equations among the nodes define, subscripts dropped: `x_1` and `x_2` name one unknown."""
    return {re.sub(r"[_0-9{}' ]", "", node.label) for node in nodes if node.kind == "equation"} - {""}


def split(text: str) -> list[str]:
    """The parts between the separators outside brackets: semicolons if there are any, else commas.

    An unspaced comma that groups digits (`1,000`) separates nothing where other commas are followed by a space.
    """
    shown = outer(text)
    mark = ";" if ";" in shown else ","
    spans = [match.span() for match in re.finditer(mark, shown)]
    if any(shown[end : end + 1] == " " for _, end in spans):
        grouped = {place for match in _GROUPED.finditer(shown) for place in range(*match.span())}
        spans = [span for span in spans if span[0] not in grouped]
    return _between(text, spans)


def _between(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    edges = [(0, 0), *spans, (len(text), len(text))]
    return [text[left[1] : right[0]].strip() for left, right in pairwise(edges)]


def _spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Where a pattern occurs outside brackets."""
    return [match.span() for match in pattern.finditer(outer(text))]


def _listed(text: str) -> str:
    r"""With commas for `\text{and}` and `\text{or}`, and for the bare words outside brackets."""
    text = _AND.sub(" , ", text)
    return " , ".join(_between(text, _spans(_BARE_AND, text)))


def _read_list(text: str) -> Node | None:
    parts = [part for part in split(text) if part]
    if len(parts) < 2:
        return read(parts[0]) if parts and parts[0] != text else None
    return Node("list", text, tuple(_flat(parts)))


def _flat(parts: list[str]) -> Iterator[Node]:
    for part in parts:
        node = read(part)
        yield from node.items if node.kind == "list" and not node.label else (node,)


def _read_equation(text: str) -> Node | None:
    spans = _spans(_EQUALS, text)
    if not spans:
        return None
    first, *others = _between(text, spans)
    named = _NAME.fullmatch(first) or _NAMES.fullmatch(first)
    is_rounded = [text[start:end] == r"\approx" for start, end in spans]
    rounded = [link for link, flag in zip(others, is_rounded, strict=True) if flag]
    exact = [] if named else [first]
    exact += [link for link, flag in zip(others, is_rounded, strict=True) if not flag]
    values = [link for link in exact if not _NAME.fullmatch(link)] or exact or rounded
    label = first.replace(" ", "") if named else ""
    return Node("equation", text, tuple(map(read, values)), label, tuple(map(read, rounded)))


def _read_ratio(text: str) -> Node | None:
    """A ratio of three or more numbers; one of two is a quotient."""
    spans = _spans(_COLON, text)
    return Node("tuple", text, tuple(map(read, _between(text, spans))), "::") if len(spans) > 1 else None


def _read_signs(text: str) -> Node | None:
    pieces = text.split(r"\pm")
    if not 2 <= len(pieces) <= MAX_SIGNS + 1:
        return None
    choices = product("+-", repeat=len(pieces) - 1)
    signed = ["".join(a + b for a, b in zip(pieces, (*choice, ""), strict=True)) for choice in choices]
    return Node("list", text, tuple(map(read, signed)))


def _read_union(text: str) -> Node | None:
    spans = _spans(_CUP, text)
    return Node("union", text, tuple(map(read, _between(text, spans)))) if spans else None


def _read_braces(text: str) -> Node | None:
    if not (text.startswith(r"\{") and text.endswith(r"\}") and _wraps(text[1:])):
        return None
    inner = text[2:-2].strip()
    builder = _BUILDER.fullmatch(inner)
    if builder:
        return read(builder["condition"])
    parts = [part for part in split(inner) if part]
    return Node("list", text, tuple(_flat(parts)), "{}") if parts else None


def _read_tuple(text: str) -> Node | None:
    if len(text) < 3 or text[0] not in "([" or text[-1] not in ")]" or not _wraps(text):
        return None
    parts = split(text[1:-1])
    return Node("tuple", text, tuple(map(read, parts)), text[0] + text[-1]) if len(parts) > 1 else None


def _read_matrix(text: str) -> Node | None:
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row.split("&") for row in _ROW.split(match["body"]) if row.strip()]
    if len({len(row) for row in rows}) != 1:
        return None
    items = tuple(read(cell) for row in rows for cell in row)
    return Node("matrix", text, items, f"{len(rows)}x{len(rows[0])}")


def _ungrouped(text: str) -> str:
    """Without brackets that only group: `{...}`, and parentheses around a single expression."""
    while len(text) > 2 and text[0] + text[-1] in ("()", "{}") and _wraps(text):
        if text[0] == "(" and len(split(text[1:-1])) > 1:
            break
        text = text[1:-1].strip()
    return text


def _wraps(text: str) -> bool:
    """True when the first bracket closes with the last character."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char in _OPEN) - (char in _CLOSE)
        if depth <= 0:
            return place == len(text) - 1
    return False


_READERS = (
    _read_list, _read_equation, _read_ratio, _read_signs, _read_union, _read_braces, _read_tuple, _read_matrix,
)  # fmt: skip
