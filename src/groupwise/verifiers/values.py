"""Expressions compared by their values: at 40 digits, at fixed points of their letters, never absolutely.

Two expressions that agree to 30 digits at every point are equal, up to a chance nobody can use: an identity that fails
somewhere fails almost everywhere. Letters take positive and negative values, whole numbers among them; a point outside
the domain (a root of a negative number, a pole) is skipped. Formulas of whole numbers (floors, factorials, powers of
-1) are compared at whole numbers only.
"""

import re
import zlib
from fractions import Fraction
from typing import Any

from sympy import (
    Abs,
    Add,
    Expr,
    Float,
    I,
    Mod,
    Mul,
    Pow,
    Rational,
    Symbol,
    binomial,
    ceiling,
    factorial,
    floor,
    nan,
    oo,
    zoo,
)  # fmt: skip
from sympy.core.function import AppliedUndef

DIGITS = 40
TOLERANCE = 1e-28
_MAX_DIGITS = 300
"""Working precision up to which cancellation is followed."""
_POINTS = 14
_ENOUGH = 6
"""Points at which two expressions must agree; fewer, where the domain is small, prove nothing below `_LEAST`."""
_LEAST = 3
_FINEST = 2000
"""Most digits in which a last difference is looked for."""
_NO_VALUE = (nan, zoo, oo, -oo)
_ARITHMETIC = (Add, Mul, Pow, factorial, binomial)
_WHOLE = (floor, ceiling, factorial, binomial, Mod)
_INDEX = re.compile(r"[d-npqst](?:_.*)?")
"""Letters that stand for whole numbers when a formula suggests it."""

Point = dict[Any, Any]


def agree(gold: Expr, value: Expr, digits: float) -> bool | None:
    """Whether two expressions are equal; None when their values do not tell.

    `digits` bounds how far behind the point a difference may hide: `2^{500}` and `2^{500} + 1` need 151.
    """
    gold, value = _prepared(gold), _prepared(value)
    if gold.has(*_NO_VALUE) or value.has(*_NO_VALUE):
        return _same_infinity(gold.doit(), value.doit())
    if not gold.free_symbols and not value.free_symbols:
        return _same_constants(gold, value, digits)
    agreed = 0
    for point in _points(gold, value):
        same = _agree_at(gold, value, point)
        if same is False or (same and not agreed and _differ_finely(gold, value, point, digits)):
            return False
        agreed += same is True
        if agreed >= _ENOUGH:
            return True
    return True if agreed >= _LEAST else None


def _same_infinity(gold: Expr, value: Expr) -> bool:
    return bool(gold == value) and gold in (oo, -oo)


def _same_constants(gold: Expr, value: Expr, digits: float) -> bool | None:
    if _is_rational(gold) and _is_rational(value):
        return bool(gold.doit() == value.doit())
    same = _agree_at(gold, value, {})
    return False if same and _differ_finely(gold, value, {}, digits) else same


def _is_rational(number: Expr) -> bool:
    """True for what exact arithmetic computes: whole powers, factorials and the like of fractions."""
    if number.is_Rational:
        return True
    whole_power = not number.is_Pow or number.exp.is_Integer or number.exp.doit().is_Integer
    return bool(whole_power and number.func in _ARITHMETIC and all(map(_is_rational, number.args)))


def _differ_finely(gold: Expr, value: Expr, point: Point, digits: float) -> bool:
    """Whether a difference shows in digits far behind those compared."""
    difference = (gold - value).evalf(2, subs=point, maxn=DIGITS + min(_FINEST, int(digits)))
    return bool(difference.is_Float) and difference != 0 and difference._prec > 1


def constant_ratio(gold: Expr, value: Expr) -> Any | None:
    """The factor by which two expressions differ everywhere; None when they differ by no constant factor."""
    gold, value = _prepared(gold), _prepared(value)
    ratio, agreed = None, 0
    for point in _points(gold, value):
        left, right = _evaluate(gold, point), _evaluate(value, point)
        if left is None or right is None or right == 0 or left == 0:
            continue
        ratio = left / right if ratio is None else ratio
        if not _close(left, ratio * right):
            return None
        agreed += 1
    return ratio if agreed >= (_LEAST if gold.free_symbols | value.free_symbols else 1) else None


def rounds(exact: Expr, decimal: Fraction, places: int) -> bool:
    """Whether a decimal with so many places is what an exact number rounds or is cut to."""
    value = _evaluate(_prepared(exact), {})
    if value is None or not value.is_real:
        return False
    error = abs(value - Rational(decimal.numerator, decimal.denominator)) * 10**places
    is_cut = error < 1 and bool(abs(Rational(decimal.numerator, decimal.denominator)) < abs(value))
    return bool(error <= Rational(1, 2)) or is_cut


def _prepared(expression: Expr) -> Expr:
    """Decimals as the fractions they are, `i` as the imaginary unit, applied unknown functions as letters."""
    exact = {number: Rational(str(number)) for number in expression.atoms(Float)}
    letters = {symbol: I for symbol in expression.free_symbols if symbol.name == "i"}
    expression = expression.xreplace(exact | letters)
    roots = {
        power: (-1) ** power.exp.p * (-power.base) ** power.exp
        for power in expression.atoms(Pow)
        if _is_odd_root(power)
    }
    moduli = {modulus: Mod(*modulus.args) for modulus in expression.atoms(Mod)}
    expression = expression.xreplace(roots | moduli)
    return expression.xreplace({call: Symbol(str(call.doit()), real=True) for call in expression.atoms(AppliedUndef)})


def _is_odd_root(power: Pow) -> bool:
    """True for odd roots of negative numbers, which are read as real: the third root of -8 is -2."""
    return bool(power.exp.is_Rational and power.exp.q > 1 and power.exp.q % 2 and power.base.is_negative)


def _points(gold: Expr, value: Expr) -> list[Point]:
    symbols = sorted(gold.free_symbols | value.free_symbols, key=lambda symbol: str(symbol.name))
    whole = _is_of_whole_numbers(gold) or _is_of_whole_numbers(value)
    whole = whole and all(_INDEX.fullmatch(symbol.name) for symbol in symbols)
    return [{symbol: _coordinate(symbol.name, index, whole) for symbol in symbols} for index in range(_POINTS)]


def _coordinate(name: str, index: int, whole: bool) -> Rational:
    """A fixed value of a letter: whole, positive or negative by the point's index, different for each letter."""
    chance = zlib.crc32(f"{name}:{index}".encode())
    if whole or index % 4 == 3:
        return Rational(1 + chance % (9 + index))
    sign = -1 if index % 4 == 2 or (index % 4 == 1 and chance & 1 << 20) else 1
    return sign * (Rational(1, 7) + Rational(chance % 99991, 33331))


def _is_of_whole_numbers(expression: Expr) -> bool:
    powers = expression.atoms(Pow)
    return expression.has(*_WHOLE) or any(power.base.is_negative and power.exp.free_symbols for power in powers)


def _agree_at(gold: Expr, value: Expr, point: Point) -> bool | None:
    if point and (_leaves_domain(gold, point) or _leaves_domain(value, point)):
        return None
    left, right = _evaluate(gold, point), _evaluate(value, point)
    return None if left is None or right is None else _close(left, right)


def _leaves_domain(expression: Expr, point: Point) -> bool:
    """True where a root is taken of a negative number: real and complex roots differ there."""
    for power in expression.atoms(Pow):
        if power.exp.is_Rational and not power.exp.is_Integer:
            base = _evaluate(power.base, point)
            if base is not None and base.is_real and base < 0:
                return True
    return False


def _evaluate(expression: Expr, point: Point) -> Any:
    """The value at a point; None where there is none, or cancellation leaves too few digits."""
    number = expression.evalf(DIGITS, subs=point, maxn=_MAX_DIGITS)
    if not number.is_number or number.has(*_NO_VALUE):
        return None
    if not all(part.is_Float or part.is_Rational for part in number.as_real_imag()):
        return None
    parts = sorted(number.as_real_imag(), key=abs)
    if not _is_precise(parts[1]):
        return None
    if _is_precise(parts[0]):
        return number
    # what cancellation left of the smaller part is nothing beside the larger one, or nobody knows what it is
    return _larger_part(number) if abs(parts[0]) <= TOLERANCE * abs(parts[1]) else None


def _is_precise(part: Any) -> bool:
    return not part.is_Float or part == 0 or part._prec >= DIGITS * 3  # bits, of which a digit takes 3.3


def _larger_part(number: Any) -> Any:
    real, imaginary = number.as_real_imag()
    return real if abs(real) > abs(imaginary) else imaginary * I


def _close(left: Any, right: Any) -> bool:
    scale = max(Abs(left), Abs(right))
    return bool(scale == 0 or Abs(left - right) <= TOLERANCE * scale)
