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

from groupwise.verifiers.math.guards import EAGER
from groupwise.verifiers.math.letters import LETTER, declared, letters_of
from groupwise.verifiers.math.normalise import closing, outer
from groupwise.verifiers.math.numbers import parse_number, split_unit

MAX_SIGNS = 3
r"""Independent signs `\pm` in one element."""

_AND = re.compile(r"\\text ?\{[ ,]*(?:and|or)[ ,]*\}")
_OR_GROUP = re.compile(r"[,; ]*(?:\\text ?\{[ ,]*or[ ,]*\}|(?<![A-Za-z\\])or(?![A-Za-z]))[, ]*")
_UNIT_AND = re.compile(r"(\\text ?\{[^{}]*[^{} ,])[ ,]+(?:and|or)[ ,]*\}")
_BARE_AND = re.compile(r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|vee)(?![a-zA-Z])")
_GROUPED = re.compile(r"(?<![0-9,.])[1-9][0-9]{0,2}(?:,[0-9]{3})+(?!,?[0-9])")
_EQUALS = re.compile(r"(?<![\\<>!=:])=(?!=)|\\approx(?![a-zA-Z])|\\in(?![a-zA-Z])")
_COLON, _CUP = re.compile(":"), re.compile(r"\\cup(?![a-zA-Z])")
_MATRIX = re.compile(
    r"[(\[]? ?\\begin ?\{(?P<kind>[pb]?matrix|array)\} ?(?:\{[lcr| ]*\})?(?P<body>.*)\\end ?\{(?P=kind)\} ?[)\]]?"
)
_ROWS = re.compile(
    r"(?:\\\{)? ?\\begin ?\{(?P<kind>(?P<table>cases|array)|(?:align(?:ed)?(?:at)?|flalign|gather(?:ed)?|equation"
    r"|eqnarray|multline|split|displaymath|math|center)\*?)\} ?(?:\[[tbc]\]|\{[lcr| 0-9]*\})* ?(?P<body>.*)"
    r"\\end ?\{(?P=kind)\}"
)
_SIGN = r"[=<>]|\\(?:leq|geq|neq|approx|equiv|in)(?![a-zA-Z])"
_ALIGNED = re.compile(rf" ?&* ?({_SIGN}) ?&*")
_CONTINUED = re.compile(rf" ?&?&? ?(?:{_SIGN})| ?&&? ?[+-]")
_CELLS = re.compile(r" ?&+ ?")
_ROW = re.compile(r"\\\\(?:\[[^\]]*\])?|\\cr(?![a-zA-Z])")
_BUILDER = re.compile(r"(?P<name>[A-Za-z](?:_[0-9a-z])?) ?(?:\\in ?\\mathbb ?\{R\} ?)?[|:](?P<condition>.*)")
_SCRIPT = r"(?:_(?:[0-9A-Za-z]|\{[^{}]*\})|')*"
_CAPITALS = rf"[A-Z]{_SCRIPT}(?: ?[A-Z]{_SCRIPT})*"
_NAME = re.compile(
    rf"(?:\\Delta ?)?{LETTER}{_SCRIPT}(?:\^ ?\{{ ?-1 ?\}})?(?: ?\([^()]{{1,40}}\))?|d[A-Za-z] ?/ ?d[A-Za-z]"
    r"|\\frac ?\{ ?(?:d|\\partial) ?[A-Za-z] ?\} ?\{ ?(?:d|\\partial) ?[A-Za-z] ?\}"
    rf"|{_CAPITALS}(?: ?[:/] ?{_CAPITALS})?|\|[A-Za-z ]{{1,9}}\|"
    r"|\\(?:angle|triangle|overline|vec|hat|bar|mathbf)(?![a-z]) ?\{?[A-Za-z ]{1,9}\}?"
    rf"|\\text ?\{{[A-Za-z .]{{1,40}}\}}{_SCRIPT}|[A-Za-z]{{3,20}}"
)
_QUANTITY = re.compile(
    r"\\(?:angle|triangle|overline|vec|binom|max|min|log|sin|cos|tan|cot|operatorname|mathbb)(?![a-z])|[A-Z]{2}|\[[A-Z]"
    r"|\\text ?\{[^{}]{3,}\}|[A-Za-z](?:_(?:\w|\{[^{}]*\}))? ?\("
)
"""Signs of the name of a quantity, not of an equation to solve: a segment, an area, a function, words."""
_DESCRIPTION = re.compile(r"(?:\\[a-zA-Z]+|[A-Za-z0-9]|[-+*/^_{}()\[\]|:,. '])+")
_CONSTANT_TERM = re.compile(r"(?:^|[-+]) ?[0-9.]+ ?(?=[-+]|$)")
_HEDGE = (
    r"not?|least|most|less|more|about|either|or|never|than|except|between|around|isn't|if|unless|approximately|false"
    r"|half|third|twice|double|triple|squared?(?! is)|cubed?(?! is)|root|negative|minus|plus|opposite|inverse"
    r"|reciprocal|without|before|after|wrong|incorrect|times|per|percent|hundreds?|thousands?|millions?|billions?|dozens?"
)
_LEAD = re.compile(
    rf"(?:(?!\b(?:{_HEDGE})\b)[^{{}}0-9=]){{0,80}}?(?:\b(?:is|are|equals|only)\b ?:?|(?<=[a-z]{{3}}) ?:)", re.IGNORECASE
)
"""Words that lead to a value and do not take it back."""
_ANSWER = re.compile(r"\b(?:answer|result|value|solution|total|thus|therefore|hence|so)s?\b", re.IGNORECASE)
"""Occurs in words that name nothing."""
_NAMES = re.compile(rf"\(? ?{LETTER}{_SCRIPT}(?:\([a-z]\))?(?: ?, ?{LETTER}{_SCRIPT}(?:\([a-z]\))?)+ ?\)?")
_WHEN = re.compile(r"^(?:\\text ?\{ ?)?(?:if|when|for) ?(?:\} ?)?")
GROUPS_OR_PAIR = re.compile(r"[(\[][0-9]{1,3}(?:,[0-9]{3})*,0[0-9]{2}(?:,[0-9]{3})*[)\]]")
"""Neither a pair, in which nobody writes `000` for 0, nor one number."""
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
    r"""Links of an equation after `\approx`."""


@lru_cache(maxsize=2048)
def read(text: str) -> Node:
    """The structure of a normalised answer."""
    if (solutions := _read_solutions(text)) is not None:
        return solutions
    text = _UNIT_AND.sub(r"\1} , ", _AND.sub(" , ", text))  # commas for `and` and `or`, bare ones outside brackets
    text = " , ".join(between(text, spans_of(_BARE_AND, text))).strip()
    while len(text) > 2 and text[0] + text[-1] in ("()", "{}") and wraps(text):  # brackets that only group
        if text[0] == "(" and len(split(text[1:-1])) > 1:
            break
        text = text[1:-1].strip()
    if parse_number(text) is None:
        text = _ungrouped(text) if "," in text else text
        for reader in _READERS:
            if (node := reader(text)) is not None:
                return node
    return Node("expression", text)


def _read_solutions(text: str) -> Node | None:
    """Several solutions of the same unknowns, as tuples: `x = 1, y = 2 or x = 2, y = 1`."""
    parts = [part for part in _OR_GROUP.sub(";", text).split(";") if part.strip()] if "=" in text else []
    if len(parts) < 2:
        return None
    groups = [read(part) for part in parts]
    labels = {tuple(item.label for item in group.items) for group in groups}
    if len(labels) != 1 or not all(_is_plain_list(group) for group in groups):
        return None
    if len(set(*labels)) < 2 or any(len(item.items) != 1 for group in groups for item in group.items):
        return None
    tuples = [Node("tuple", group.text, tuple(item.items[0] for item in group.items), "()") for group in groups]
    return Node("list", text, tuple(tuples))


def names(nodes: tuple[Node, ...]) -> set[str]:
    """The names that equations among the nodes define, subscripts dropped: `x_1` and `x_2` name one unknown."""
    return {re.sub(r"[_0-9{} ]", "", node.label) for node in nodes if node.kind == "equation"} - {""}


def leaves(node: Node) -> Iterator[str]:
    """The single expressions of a structure."""
    if node.kind == "expression":
        yield node.text
    for item in (*node.items, *node.rounded):
        yield from leaves(item)


def split(text: str) -> list[str]:
    """The parts between the separators outside brackets: semicolons if any, else commas that group no digits."""
    outer_text = outer(text)
    mark = ";" if ";" in outer_text else ","
    spans = [match.span() for match in re.finditer(mark, outer_text)]
    if any(outer_text[end : end + 1] == " " for _, end in spans):
        group_positions = {index for match in _GROUPED.finditer(outer_text) for index in range(*match.span())}
        spans = [span for span in spans if span[0] not in group_positions]
    return between(text, spans)


def between(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The texts between the spans, and before the first and after the last."""
    edges = [(0, 0), *spans, (len(text), len(text))]
    return [text[left[1] : right[0]].strip() for left, right in pairwise(edges)]


def spans_of(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """Find a pattern outside brackets."""
    return [match.span() for match in pattern.finditer(outer(text))]


def _read_list(text: str) -> Node | None:
    # what an element declares of its function's argument belongs to no list: `f(x) = x \text{ for all } x`
    parts = [declared(part).core if part[1:2] == "(" else part for part in split(text) if part]
    if len(parts) < 2:
        return read(parts[0]) if parts and parts[0] != text else None
    return Node("list", text, tuple(_flatten(parts)))


def _flatten(parts: list[str]) -> Iterator[Node]:
    for part in parts:
        node = read(part)
        if node.kind == "equation" and node.label and len(node.items) == 1 and _is_plain_list(node.items[0]):
            for item in node.items[0].items:  # `x = \pm 2` among other values
                yield Node("equation", f"{node.label} = {item.text}", (item,), node.label)
        else:
            yield from node.items if _is_plain_list(node) else (node,)


def _is_plain_list(node: Node) -> bool:
    return node.kind == "list" and not node.label


def _read_lead(text: str) -> Node | None:
    r"""A value after words: `\text{The answer is } 5`, `Answer: 5`; words that name something are its label."""
    if words := re.match(r"\\text ?\{([^{}]{1,80})\} ?(?=.)", text):
        is_lead, lead, tail = _LEAD.fullmatch(words[1].strip()), words[1], text[words.end() :]
    else:
        is_lead = _LEAD.match(text) if text[:1].isalpha() and text[1:2] != "_" else None
        lead, tail = (is_lead[0], text[is_lead.end() :].strip()) if is_lead else ("", "")
    if is_lead is None or len(lead) <= 3 or not tail:
        return None
    value = read(tail)
    return value if _ANSWER.search(lead) else Node("equation", text, (value,), lead.strip(" :").replace(" ", ""))


def _read_equation(text: str) -> Node | None:
    if not (spans := spans_of(_EQUALS, text)):
        return None
    head, *links = between(text, spans)
    solves = letters_of(links[-1]) or links[-1] == "0"
    is_name = _NAME.fullmatch(head) or _NAMES.fullmatch(head) or EAGER.match(head) or (_describes(head) and not solves)
    is_rounded = [text[start:end] == r"\approx" for start, end in spans]
    rounded_links = [link for link, flag in zip(links, is_rounded, strict=True) if flag]
    exact_links = [] if is_name else [head]
    exact_links += [link for link, flag in zip(links, is_rounded, strict=True) if not flag]
    values = [link for link in exact_links if not _NAME.fullmatch(link)] or exact_links or rounded_links
    if not letters_of(values[-1]):  # in `AB = AC + CB = 3 + 4 = 7` the second link names the quantity too
        values = [link for link in values if link is head or not _describes(link)]
    label = head.replace(" ", "") if is_name else ""
    return Node("equation", text, tuple(map(read, values)), label, tuple(map(read, rounded_links)))


def _describes(text: str) -> bool:
    r"""True for what names a quantity (`\frac{AB}{CD}`, `m + n`), not an equation to solve (`x + 1`, `2x + 3y`)."""
    if not _DESCRIPTION.fullmatch(text) or not letters_of(text) or _CONSTANT_TERM.search(outer(text)):
        return False
    return _QUANTITY.search(text) is not None or len(letters_of(text, subscripts=True) - {"x", "y", "z"}) > 1


def _read_rows(text: str) -> Node | None:
    if (match := _ROWS.fullmatch(text)) is None:
        return None
    lines: list[str] = []
    for row in _ROW.split(match["body"]):
        cells = _CELLS.split(_ALIGNED.sub(r" \1 ", row.strip(" ,;.")))
        if len(cells) > 1 and match["table"]:
            return _read_pieces(text, match["body"]) if match["table"] == "cases" else None
        if lines and _CONTINUED.match(row):
            lines[-1] += f" {cells.pop(0)}"
        lines.extend(cells)
    parts = [part for line in lines for part in split(line) if part]
    if len(parts) == 1:
        return read(parts[0])
    return Node("list", text, tuple(_flatten(parts))) if parts else None


def _read_pieces(text: str, body: str) -> Node | None:
    """Read a function by its pieces, as pairs of value and condition in any order."""
    rows = [[cell.strip(" ,;.") for cell in row.split("&")] for row in _ROW.split(body) if row.strip()]
    if any(len(row) != 2 or not all(row) for row in rows):
        return None
    pairs = [(value, _WHEN.sub("", condition)) for value, condition in rows]
    return Node("list", text, tuple(Node("tuple", f"({a}, {b})", (read(a), read(b)), "()") for a, b in pairs), "cases")


def _read_collection(text: str) -> Node | None:
    r"""Read a ratio of three or more numbers (one of two is a quotient), a union, a set in braces, or signs `\pm`."""
    colons, cups = spans_of(_COLON, text), spans_of(_CUP, text)
    if len(colons) > 1:
        parts = between(text, colons)
        numbers = [number.exact for part in parts if (number := parse_number(part))]
        if len(numbers) == len(parts) and numbers[0]:  # `4:6:10` is `2:3:5`
            parts = [str(number / numbers[0]) for number in numbers]
        return Node("tuple", text, tuple(map(read, parts)), "::")
    if cups:
        return Node("union", text, tuple(map(read, between(text, cups))))
    if text.startswith(r"\{") and text.endswith(r"\}") and wraps(text[1:]):
        content = text[2:-2].strip()
        if builder := _BUILDER.fullmatch(content):
            return read(builder["condition"])
        if parts := [part for part in split(content) if part]:
            return Node("list", text, tuple(_flatten(parts)), "{}")
    pieces = text.split(r"\pm")
    if not 2 <= len(pieces) <= MAX_SIGNS + 1:
        return None
    choices = product("+-", repeat=len(pieces) - 1)
    texts = ["".join(a + b for a, b in zip(pieces, (*choice, ""), strict=True)) for choice in choices]
    return Node("list", text, tuple(map(read, texts)))


def _read_tuple(text: str) -> Node | None:
    core, sign, unit = text, "", ""
    if text[:1] in ("+", "-"):
        sign, core = text[0], text[1:].strip()
    elif text[-1:] not in (")", "]", ""):
        core = split_unit(text)[0]
        unit = text[len(core) :]
    if len(core) < 3 or core[0] not in "([" or core[-1] not in ")]" or not wraps(core):
        return None
    parts = split(core[1:-1])
    rows = [split(part[1:-1]) for part in parts if part[:1] == "[" and part[-1:] == "]" and wraps(part)]
    if core[0] == "[" and len(rows) == len(parts) > 1 and len(set(map(len, rows))) == 1 and not sign + unit:
        return Node("matrix", text, tuple(read(cell) for row in rows for cell in row), f"{len(rows)}x{len(rows[0])}")
    if len(parts) < 2 or (sign and core[0] + core[-1] != "()") or GROUPS_OR_PAIR.fullmatch(core):
        return None
    if sign == "-":
        parts = [
            part[1:] if part.startswith("-") and not re.search("[-+]", part[1:]) else f"-({part})" for part in parts
        ]
    items = [part + unit if not split_unit(part)[1] else part for part in parts] if unit else parts
    return Node("tuple", text, tuple(map(read, items)), core[0] + core[-1])


def _read_matrix(text: str) -> Node | None:
    if (match := _MATRIX.fullmatch(text)) is None:
        return None
    rows = [row.split("&") for row in _ROW.split(match["body"]) if row.strip()]
    if len({len(row) for row in rows}) != 1:
        return None
    items = tuple(read(cell) for row in rows for cell in row)
    return items[0] if len(items) == 1 else Node("matrix", text, items, f"{len(rows)}x{len(rows[0])}")


def wraps(text: str) -> bool:
    """True when the first bracket closes with the last character."""
    return text[:1] in _OPEN and closing(text, 0) == len(text) - 1


def _ungrouped(text: str) -> str:
    r"""The text without commas that group digits (`1,000x`, `\frac{1,000}{3}`), where none can separate elements."""
    grouping = {index for match in _GROUPED.finditer(text) for index in range(*match.span()) if text[index] == ","}
    if not grouping or any(match.start() not in grouping for match in re.finditer(",", outer(text))):
        return text
    brackets: list[str] = []
    chars = []
    for index, char in enumerate(text):
        if char in _OPEN:
            is_script = char == "{" and text[index - 1 : index] in ("_", "\\")
            brackets.append(text[index - 1 : index + 1] if is_script else char)
        elif char in _CLOSE and brackets:
            brackets.pop()
        if index not in grouping or set(brackets) - {"{"}:
            chars.append(char)
    return "".join(chars)


_READERS = (_read_rows, _read_list, _read_lead, _read_equation, _read_collection, _read_tuple, _read_matrix)
