"""Sets of real numbers compared exactly: unions of intervals and points are known by what their end points tell.

A set whose ends are among finitely many numbers is determined by whether it holds those numbers and one number
between each two neighbours. Math-Verify asks SymPy for a symmetric difference instead, which takes seconds for ends
such as `4 - sqrt(3)`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sympy import (
    Complement,
    Eq,
    Expr,
    FiniteSet,
    Ge,
    Gt,
    Intersection,
    Interval,
    Le,
    Lt,
    Ne,
    Rational,
    S,
    Union,
    oo,
)  # fmt: skip
from sympy.core.relational import Relational
from sympy.logic.boolalg import And

_DIGITS = 40
_TOLERANCE = Rational(1, 10**30)
_FLIPPED = {Lt: Gt, Gt: Lt, Le: Ge, Ge: Le, Ne: Ne}


def same_sets(gold: Any, value: Any) -> bool | None:
    """Whether two sets, or inequalities in one unknown, hold the same real numbers; None when that is beyond us."""
    left, right = _real_set(gold), _real_set(value)
    if left is None or right is None or (left[0] is not None and right[0] is not None and left[0] != right[0]):
        return None
    ends = [*_ends(left[1]), *_ends(right[1])]
    if not all(_is_real_number(end) for end in ends):
        return None
    return all(_holds(left[1], point) == _holds(right[1], point) for point in _witnesses(ends))


def _real_set(thing: Any) -> tuple[Any, Any] | None:
    """The unknown (None for a plain set) and the set."""
    if isinstance(thing, And):
        parts = [_real_set(part) for part in thing.args]
        if None in parts or len({part[0] for part in parts if part}) != 1:
            return None
        return parts[0][0], Intersection(*(part[1] for part in parts if part), evaluate=False)  # type: ignore[index]
    if isinstance(thing, Relational):
        return _solution(thing)
    known = isinstance(thing, Interval | FiniteSet | Union | Intersection | Complement)
    return (None, thing) if known or thing in (S.Reals, S.EmptySet) else None


def _solution(relation: Relational) -> tuple[Any, Any] | None:
    kind, unknown, bound = type(relation), relation.lhs, relation.rhs
    if not unknown.free_symbols and kind in _FLIPPED:
        kind, unknown, bound = _FLIPPED[kind], bound, unknown
    if not isinstance(bound, Expr) or bound.free_symbols or not (unknown.is_Symbol or unknown.is_Function):
        return None
    sets = {
        Lt: Interval.open(-oo, bound), Le: Interval(-oo, bound), Gt: Interval.open(bound, oo), Ge: Interval(bound, oo),
        Ne: Complement(S.Reals, FiniteSet(bound), evaluate=False), Eq: FiniteSet(bound),
    }  # fmt: skip
    return (unknown, sets[kind]) if kind in sets and unknown.func.__name__ != "Abs" else None


def _ends(part: Any) -> Iterator[Any]:
    if isinstance(part, Interval):
        yield from (end for end in (part.start, part.end) if end not in (oo, -oo))
    elif isinstance(part, FiniteSet):
        yield from part.args
    else:
        for one in part.args:
            yield from _ends(one)


def _is_real_number(end: Any) -> bool:
    return isinstance(end, Expr) and not end.free_symbols and bool(end.evalf(_DIGITS).is_Float or end.is_Rational)


def _witnesses(ends: list[Any]) -> list[Any]:
    """The ends, one number between each two, and one beyond them on either side."""
    values = sorted(end.evalf(_DIGITS) for end in ends) or [S.Zero]
    between = [(left + right) / 2 for left, right in pairwise(values)]
    return [values[0] - 1, *values, *between, values[-1] + 1]


def _holds(part: Any, point: Any) -> bool:
    if isinstance(part, Interval):
        low, high = _side(part.start, point), _side(part.end, point)
        return (low < 0 or (low == 0 and not part.left_open)) and (high > 0 or (high == 0 and not part.right_open))
    if isinstance(part, FiniteSet):
        return any(_side(one, point) == 0 for one in part.args)
    inside = [_holds(one, point) for one in part.args]
    if isinstance(part, Complement):
        return inside[0] and not inside[1]
    if isinstance(part, Union | Intersection):
        return any(inside) if isinstance(part, Union) else all(inside)
    return bool(part != S.EmptySet)


def _side(end: Any, point: Any) -> int:
    """Where an end lies: -1 left of the point, 0 at it, 1 right of it."""
    if end in (oo, -oo):
        return 1 if end == oo else -1
    difference = end.evalf(_DIGITS) - point
    if abs(difference) <= _TOLERANCE * max(1, abs(point)):
        return 0
    return 1 if difference > 0 else -1
