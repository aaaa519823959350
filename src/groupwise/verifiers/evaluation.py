"""The value of an expression at a point, computed with mpmath from the leaves up: each part once.

SymPy's own evaluation starts again at each level where digits cancel, so that nested fractions take exponential time;
here the caller sets a precision that suffices (`values.py`).
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
from sympy import Expr, Symbol

Point = Mapping[Symbol, Fraction]


class LeftDomainError(Exception):
    """The expression has no value there, or one on which readers differ."""


def evaluate(expression: Expr, point: Point) -> Any:
    """A real or complex mpmath number, at the precision of the context.

    Raises:
        LeftDomainError: a root of a negative number at a point (the root of a constant is taken), or no number at all.
        ZeroDivisionError, ValueError, OverflowError: as mpmath raises them.
    """
    if expression.is_Symbol:
        return _fraction(point[expression])
    if expression.is_Rational:
        return mpmath.mpf(int(expression.p)) / int(expression.q)
    name = expression.func.__name__
    if name in _CONSTANTS:
        return +_CONSTANTS[name]
    parts = [evaluate(part, point) for part in expression.args]
    if name == "Pow":
        return _power(expression, parts[0], parts[1], bool(point))
    if name not in _FUNCTIONS or not parts:
        raise LeftDomainError
    return _FUNCTIONS[name](*parts)


def _fraction(value: Fraction) -> Any:
    return mpmath.mpf(value.numerator) / value.denominator


def _power(power: Expr, base: Any, exponent: Any, at_point: bool) -> Any:
    if mpmath.isint(exponent):
        return base ** int(exponent.real)
    if isinstance(base, mpmath.mpf) and base < 0 and power.exp.is_Rational:
        if at_point:
            raise LeftDomainError
        if power.exp.q % 2:  # an odd root of a negative number is read as real: the third root of -8 is -2
            return (-1) ** int(power.exp.p) * mpmath.power(-base, exponent)
    return mpmath.power(base, exponent)


def _logarithm(value: Any, base: Any = None) -> Any:
    if value == 0:
        raise LeftDomainError
    return mpmath.log(value) if base is None else mpmath.log(value) / mpmath.log(base)


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_reals(*values: Any) -> Any:
        if any(isinstance(value, mpmath.mpc) and value.imag != 0 for value in values):
            raise LeftDomainError
        return function(*(value.real for value in values))

    return of_reals


_CONSTANTS = {
    "Pi": mpmath.pi, "Exp1": mpmath.e, "ImaginaryUnit": mpmath.mpc(0, 1), "EulerGamma": mpmath.euler,
    "GoldenRatio": mpmath.phi,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *parts: mpmath.fsum(parts), "Mul": lambda *parts: mpmath.fprod(parts), "UnevaluatedExpr": lambda x: x,
    "Abs": abs, "exp": mpmath.exp, "log": _logarithm, "factorial": mpmath.factorial, "gamma": mpmath.gamma,
    "binomial": mpmath.binomial, "floor": _real(mpmath.floor), "ceiling": _real(mpmath.ceil),
    "Mod": _real(lambda value, modulus: value - modulus * mpmath.floor(value / modulus)),
    "Max": _real(max), "Min": _real(min), "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot,
    "sec": mpmath.sec, "csc": mpmath.csc, "asin": mpmath.asin, "acos": mpmath.acos, "atan": mpmath.atan,
    "acot": mpmath.acot, "asec": mpmath.asec, "acsc": mpmath.acsc, "sinh": mpmath.sinh, "cosh": mpmath.cosh,
    "tanh": mpmath.tanh, "asinh": mpmath.asinh, "acosh": mpmath.acosh, "atanh": mpmath.atanh,
}  # fmt: skip
