r"""Families of numbers that a free whole number runs through: `\frac{\pi}{4} + k\pi` is `n\pi - \frac{3\pi}{4}`.

A family is a set of residues: of all numbers `a + bk` only `a` modulo `b` matters, and several families are compared
modulo a period that they have in common.
"""

from fractions import Fraction
from math import lcm
from typing import Any

from sympy import Expr, Symbol, simplify

from groupwise.verifiers.math.letters import Declared, declared, letters_of
from groupwise.verifiers.math.parsing import parse
from groupwise.verifiers.math.structure import Node, read

_MOST = 100
"""Residues that a side may have."""
_DIGITS = 40
_TOLERANCE = 1e-30

Family = tuple[Any, Any]
"""Offset and period."""


def same_families(reference: str, answer: str) -> bool | None:
    """Whether two answers with a free whole number are the same set of numbers; None if either is something else."""
    left, right = declared(reference), declared(answer)
    if "Z" not in (*left.domains.values(), *right.domains.values()):
        return None
    gold, value = _families(left), _families(right)
    if gold is None or value is None:
        return None
    return (not gold[0] or not value[0] or gold[0] == value[0]) and _same(gold[1], value[1])


def _families(text: Declared) -> tuple[set[str], list[Family]] | None:
    """The names and the families of an answer; None if there is anything else in it."""
    node = read(text.core)
    items = node.items if node.kind == "list" else (node,)
    families = [_family(item, text) for item in items]
    names = {item.label for item in items if item.kind == "equation"}
    return None if None in families else (names, [family for family in families if family])


def _family(node: Node, text: Declared) -> Family | None:
    value = node.items[0] if node.kind == "equation" and node.label and len(node.items) == 1 else node
    letters = letters_of(value.text)
    if value.kind != "expression" or len(letters) != 1 or (text.domains and not letters <= text.domains.keys()):
        return None
    expression = parse(value.text, True, False)
    symbols = expression.free_symbols if isinstance(expression, Expr) else set[Symbol]()
    if len(symbols) != 1:
        return None
    letter = next(iter(symbols))
    period, offset = expression.diff(letter), expression.subs(letter, 0)
    return None if period.free_symbols or not period.is_real or period.is_zero else (offset, period)


def _same(gold: list[Family], value: list[Family]) -> bool:
    unit = gold[0][1]
    shares = [simplify(period / unit) for _, period in (*gold, *value)]
    if not all(share.is_Rational for share in shares):
        return False
    shares = [abs(Fraction(int(share.p), int(share.q))) for share in shares]
    denominator = lcm(*(share.denominator for share in shares))
    periods = [int(share * denominator) for share in shares]
    cycle = lcm(*periods)  # of the unit's parts
    if sum(cycle // period for period in periods) > _MOST:
        return False
    residues = [
        [(offset / unit * denominator + step * period).evalf(_DIGITS) / cycle for step in range(cycle // period)]
        for (offset, _), period in zip((*gold, *value), periods, strict=True)
    ]
    left, right = (
        [point for group in groups for point in group] for groups in (residues[: len(gold)], residues[len(gold) :])
    )
    return all(any(_is_whole(left_point - right_point) for right_point in right) for left_point in left) and all(
        any(_is_whole(left_point - right_point) for left_point in left) for right_point in right
    )


def _is_whole(difference: Any) -> bool:
    return bool(abs(difference - round(difference)) < _TOLERANCE)
