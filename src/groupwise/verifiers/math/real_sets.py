"""Sets of real numbers compared exactly: unions of intervals and points are determined by their end points.

A set whose ends are among finitely many numbers is determined by whether it holds those numbers and one number
between each two neighbours. Math-Verify asks SymPy for a symmetric difference instead, which takes seconds for ends
such as `4 - sqrt(3)`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import sympy as sp

from groupwise.verifiers.math.letters import LETTER
from groupwise.verifiers.math.numbers import parse_number
from groupwise.verifiers.math.parsing import parse
from groupwise.verifiers.math.structure import between, read, spans_of, wraps

_DIGITS = 40
_TOLERANCE = sp.Rational(1, 10**30)
_FLIPPED = {sp.Lt: sp.Gt, sp.Gt: sp.Lt, sp.Le: sp.Ge, sp.Ge: sp.Le, sp.Ne: sp.Ne}
_JOINT = re.compile(r"[,; ]*(?:\\text ?\{[ ,]*(and|or)[ ,]*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z]))[, ]*")
_OR = re.compile(r"\\(?:cup|lor|vee)(?![a-zA-Z])|(?<![A-Za-z\\])or(?![A-Za-z])")
_AND = re.compile(r"\\(?:cap|land|wedge)(?![a-zA-Z])|(?<![A-Za-z\\])and(?![A-Za-z])")
_MINUS = re.compile(r"\\(?:setminus|backslash)(?![a-zA-Z])|(?<=[})\]]) ?[-/] ?(?=\\\{)")
_COMMA = re.compile(r"[,;]")
_IN = re.compile(r"\\in(?![a-zA-Z])|(?<![<>=:])=")
_RELATION = re.compile(r"<|>|=|\\(?:leq|geq|neq)(?![a-zA-Z])")
_SIGNS = {"<": sp.Lt, ">": sp.Gt, "=": sp.Eq, r"\leq": sp.Le, r"\geq": sp.Ge, r"\neq": sp.Ne}
_UNKNOWN = re.compile(rf"{LETTER}(?:_(?:\w|\{{\w{{1,4}}\}}))?")
_ALL = re.compile(
    r"all (?:real numbers?|reals)(?: (?P<unknown>[a-z]))?(?: ?(?:except|other than|but) (?:for )?(?P<but>.+))?"
)
_NAMED_SETS = dict.fromkeys((r"\emptyset", "no solution", "no real solution"), sp.S.EmptySet)
_NAMED_SETS |= {r"\mathbb{R}": sp.S.Reals}

Named = tuple[str | None, Any]  # the unknown that the set describes (None: no unknown), and the set


class _NoSetError(Exception):
    """The text cannot be read as a set of real numbers."""


def same_sets(reference: str, answer: str) -> bool | None:
    """Compare two normalised texts as sets of real numbers; None if either cannot be read as one."""
    try:
        left, right = (
            _read_set(_JOINT.sub(lambda match: f" {match[1] or match[2]} ", text)) for text in (reference, answer)
        )
    except _NoSetError:
        return None
    if left[0] and right[0] and left[0] != right[0]:
        return None
    ends = [*_ends(left[1]), *_ends(right[1])]
    if not all(_is_real_number(end) for end in ends):
        return None
    return all(_holds(left[1], point) == _holds(right[1], point) for point in _witnesses(ends))


def is_real_set(text: str) -> bool:
    """True when a normalised text is a set of real numbers that can be read."""
    return same_sets(text, text) is not None


def _read_set(text: str) -> Named:
    text = text.strip(" .")
    while text[:1] + text[-1:] == "()" and wraps(text) and not spans_of(_COMMA, text[1:-1]):
        text = text[1:-1].strip()
    for pattern, reader in _SPLITS:
        parts = between(text, spans_of(pattern, text))
        if len(parts) > 1 and not (pattern is _COMMA and wraps(text)):
            return reader([part for part in parts if part])
    parts = between(text, spans_of(_MINUS, text))
    if len(parts) > 1 and any(parts):
        minuend, *subtrahends = (_read_set(part) for part in parts if part)
        excluded = sp.Union(*(members for _, members in subtrahends), evaluate=False)
        return minuend[0], sp.Complement(minuend[1], excluded, evaluate=False)
    bare = " ".join(re.sub(r"\\text ?\{([^{}]*)\}", r" \1 ", text).split())
    words = (bare[:1].lower() + bare[1:]).removesuffix("s") if text not in _NAMED_SETS else text
    key = re.sub(r"(?<=\\mathbb) | (?=\})|(?<=\{) ", "", text)
    if key in _NAMED_SETS or words in _NAMED_SETS:
        return None, _NAMED_SETS.get(key, _NAMED_SETS.get(words))
    if match := _ALL.fullmatch(words) or _ALL.fullmatch(f"{words}s"):
        exception = match["but"]
        exclusions = _values(re.sub(r"^[a-z] ?= ?", "", exception)) if exception else []
        if exclusions is None:
            raise _NoSetError
        return None, sp.Complement(sp.S.Reals, sp.FiniteSet(*exclusions), evaluate=False) if exception else sp.S.Reals
    return _read_bracketed(text) or _read_relation(text)


def _join(parts: Sequence[Named], kind: type) -> Named:
    unknowns = {name for name, _ in parts if name}
    if len(unknowns) > 1:
        raise _NoSetError
    return next(iter(unknowns), None), kind(*(part for _, part in parts), evaluate=False)


def _enumeration(parts: list[str]) -> Named:
    r"""Sets with commas between them: conditions where they can all hold, else alternatives (`x < 1, x > 3`)."""
    sets: list[Named] = []
    for part in parts:
        if sets and _RELATION.search(part) is None and parts[0] != part and _values(part) is not None:
            name, last_set = sets[-1]  # `x \neq 1, 2`
            if isinstance(last_set, sp.Complement) and last_set.args[0] == sp.S.Reals:
                exclusions = sp.FiniteSet(*last_set.args[1].args, *(_values(part) or ()))
                sets[-1] = name, sp.Complement(sp.S.Reals, exclusions, evaluate=False)
                continue
        sets.append(_read_set(part))
    names = {name for name, _ in sets}
    if None in names and len(names) > 1 and not any(part == sp.S.Reals for _, part in sets):
        raise _NoSetError
    kind = sp.Union if names == {None} else sp.Intersection
    for (_, left), (_, right) in combinations(sets, 2):
        ends = [*_ends(left), *_ends(right)]
        if not all(map(_is_real_number, ends)):
            raise _NoSetError
        if not any(_holds(left, point) and _holds(right, point) for point in _witnesses(ends)):
            kind = sp.Union
            break
    return _join(sets, kind)


def _values(text: str) -> list[Any] | None:
    node = read(text)
    items = node.items if node.kind == "list" else (node,)
    try:
        return [_constant(item.text) for item in items]
    except _NoSetError:
        return None


def _read_bracketed(text: str) -> Named | None:
    r"""An interval, a set of numbers, or a set builder; with a name before `\in` or `=`."""
    if text.startswith(r"\{") and text.endswith(r"\}") and wraps(text[1:]):
        body = text[2:-2].strip()
        unknown, bar, condition = re.match(r"([^|:]*)([|:]?)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        if bar:
            name, _, domain = unknown.partition(r"\in")
            condition_name, members = _read_set(condition)
            if not _UNKNOWN.fullmatch(name.strip()) or condition_name not in (name.strip(), None):
                raise _NoSetError
            return None, sp.Intersection(_read_set(domain)[1], members, evaluate=False) if domain else members
        numbers = _values(body) if body else []
        if numbers is None:
            raise _NoSetError
        return None, sp.FiniteSet(*numbers)
    if len(text) > 4 and text[0] in "([" and text[-1] in ")]" and wraps(text):
        ends = between(text[1:-1], spans_of(_COMMA, text[1:-1]))
        if len(ends) != 2:
            raise _NoSetError
        low, high = (_constant(end) for end in ends)
        if sp.oo == low or high == -sp.oo or (-sp.oo < low and high < sp.oo and _side(low, high.evalf(_DIGITS)) >= 0):
            raise _NoSetError
        return None, sp.Interval(low, high, text[0] == "(", text[-1] == ")")
    spans = spans_of(_IN, text)
    if len(spans) == 1:
        name, content = between(text, spans)
        if _UNKNOWN.fullmatch(name) and (
            content[:1] in ("(", "[", "\\") and not re.match(r"\\(?!\{|mathbb|emptyset)", content)
        ):
            return name, _read_set(content)[1]
    return None


def _read_relation(text: str) -> Named:
    """A chain of relations of one unknown and numbers: `1 < x`, `1 < x <= 3`."""
    spans = spans_of(_RELATION, text)
    sides = between(text, spans)
    name = next((side for side in sides if _UNKNOWN.fullmatch(side)), None)
    if name is None or sides.count(name) != 1 or not 1 <= len(spans) <= 2:
        raise _NoSetError
    middle = sides.index(name)
    if len(sides) == 3 and middle != 1:
        raise _NoSetError
    parts = []
    for index, (start, end) in enumerate(spans):
        kind = _SIGNS[text[start:end]]
        operand = sides[index + 1] if index == middle else sides[index]
        kind = kind if index == middle else _FLIPPED.get(kind, kind)
        values = _values(operand)
        if values is None or (len(values) > 1 and kind not in (sp.Eq, sp.Ne)):
            raise _NoSetError
        parts.append((name, _solution_set(kind, values)))
    return _join(parts, sp.Intersection) if len(parts) > 1 else parts[0]


def _solution_set(kind: Any, values: list[Any]) -> Any:
    if kind in (sp.Eq, sp.Ne):
        points = sp.FiniteSet(*values)
        return points if kind is sp.Eq else sp.Complement(sp.S.Reals, points, evaluate=False)
    if kind in (sp.Lt, sp.Le):
        return sp.Interval(-sp.oo, values[0], False, kind is sp.Lt)
    return sp.Interval(values[0], sp.oo, kind is sp.Gt)


def _constant(text: str) -> Any:
    text = text.strip()
    if text in (r"\infty", r"+\infty", r"+ \infty"):
        return sp.oo
    if text in (r"-\infty", r"- \infty"):
        return -sp.oo
    if (number := parse_number(text)) is not None:
        return sp.Rational(number.exact.numerator, number.exact.denominator)
    try:
        value = parse(text, True, True)
    except Exception:  # whatever the grammar raises: this is not a number
        raise _NoSetError from None
    if not _is_real_number(value):
        raise _NoSetError
    return value


_SPLITS = (
    (_COMMA, _enumeration),
    (_OR, lambda parts: _join([_read_set(part) for part in parts], sp.Union)),
    (_AND, lambda parts: _join([_read_set(part) for part in parts], sp.Intersection)),
)


def _ends(part: Any) -> Iterator[Any]:
    if isinstance(part, sp.Interval):
        yield from (end for end in (part.start, part.end) if end not in (sp.oo, -sp.oo))
    elif isinstance(part, sp.FiniteSet):
        yield from part.args
    else:
        for subset in part.args:
            yield from _ends(subset)


def _is_real_number(end: Any) -> bool:
    return isinstance(end, sp.Expr) and not end.free_symbols and bool(end.evalf(_DIGITS).is_Float or end.is_Rational)


def _witnesses(ends: list[Any]) -> list[Any]:
    """The ends, one number between each two, and one beyond them on either side."""
    values = sorted(end.evalf(_DIGITS) for end in ends) or [sp.S.Zero]
    midpoints = [(left + right) / 2 for left, right in pairwise(values)]
    return [values[0] - 1, *values, *midpoints, values[-1] + 1]


def _holds(part: Any, point: Any) -> bool:
    if isinstance(part, sp.Interval):
        low, high = _side(part.start, point), _side(part.end, point)
        return (low < 0 or (low == 0 and not part.left_open)) and (high > 0 or (high == 0 and not part.right_open))
    if isinstance(part, sp.FiniteSet):
        return any(_side(subset, point) == 0 for subset in part.args)
    memberships = [_holds(subset, point) for subset in part.args]
    if isinstance(part, sp.Complement):
        return memberships[0] and not memberships[1]
    if isinstance(part, sp.Union | sp.Intersection):
        return any(memberships) if isinstance(part, sp.Union) else all(memberships)
    return bool(part != sp.S.EmptySet)


def _side(end: Any, point: Any) -> int:
    """Return -1 for an end left of the point, 0 at it, 1 right of it."""
    if end in (sp.oo, -sp.oo):
        return 1 if end == sp.oo else -1
    difference = end.evalf(_DIGITS) - point
    if abs(difference) <= _TOLERANCE * max(1, abs(point)):
        return 0
    return 1 if difference > 0 else -1
