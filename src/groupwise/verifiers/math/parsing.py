"""LaTeX into SymPy by the grammar of Math-Verify, and expressions compared by their values at fixed points.

What that grammar reads wrongly is corrected or refused; no text of a model reaches `eval`, `sympify`, `parse_expr` or
`lambdify`. Two expressions that agree to many digits at every point are equal, up to a chance that cannot be exploited.
Letters take positive and negative values, whole numbers among them; a point outside the domain is skipped. Formulas of
whole numbers (floors, factorials, powers of -1) are compared at whole numbers only.

`digits` bounds the decimal digits of all numbers in two expressions (`guards.size`): a difference shows in that many
digits relative to the larger value, so 30 more decide, and twice as many are carried against cancellation. Beyond
`_MOST_DIGITS` only fractions are told apart to the last digit. Values are computed with mpmath from the leaves up, each
part once: SymPy's own evaluation takes exponential time for nested fractions.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath  # type: ignore[import-untyped]
import sympy as sp
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import NormalizationConfig, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from math_verify.grader import should_treat_as_complex
from sympy import Mul, Rational
from sympy.core.function import AppliedUndef

_NORMALISATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_ANGLE = re.compile(r"\\angle ?\{? ?([A-Z])(?: ?([A-Z]) ?([A-Z]))? ?\}?")
_CROSS = re.compile(r"\\vec ?\{ ?([a-zA-Z]) ?\} ?\\times ?\\vec ?\{ ?([a-zA-Z]) ?\}")
_LETTERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    # the sides of an angle have no order; those of a cross product have
    (_ANGLE, lambda m: rf"\theta_{{{m[2] or ''}{''.join(sorted(filter(None, m.group(1, 3))))}}}"),
    (_CROSS, lambda m: rf"({'-' * (m[1] > m[2])}N_{{{min(m[1], m[2])}{max(m[1], m[2])}}})"),
    (re.compile(r"(\\[a-zA-Z]+|[a-zA-Z])('{1,3})"), lambda m: f"{m[1]}_{{{'p' * len(m[2])}}}"),
    (re.compile(r"(?<![a-zA-Z\\])([fghFGH])\^ ?\{ ?-1 ?\}(?= ?\()"), lambda m: f"{m[1]}_{{inv}}"),
    (re.compile(r"\^ ?\{? ?T(?![a-zA-Z_^]) ?\}?"), lambda m: "^{T_{o}}"),  # the grammar would transpose a number
)
"""Letters that the grammar takes for something else."""
_MISREAD = re.compile(r"'|\\nabla(?![a-z])|\\(?:gcd|lcm)(?![a-z])|\\text ?\{ ?(?:gcd|lcm) ?\}|[0-9] ?_")
_MIXED = re.compile(
    r"(?<![_^0-9.])(?P<whole>[0-9]{1,99}) ?\\frac ?\{ ?(?P<top>[0-9]{1,99}) ?\} ?\{ ?(?P<bottom>[0-9]{1,99}) ?\}"
)
_SLASHED = re.compile(
    r"(?<![0-9.^_}/])([0-9]{1,99}(?:\.[0-9]{1,99})?) ?/ ?([0-9]{1,99}(?:\.[0-9]{1,99})?)(?= ?[a-zA-Z\\(])"
)
"""`1/2x` is half of x, as at school."""
_NAME = r"\\(?:(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log)(?![a-zA-Z])"
_FUNCTION = re.compile(
    rf"(?>{_NAME} ?"
    r"(?:[\^_] ?(?:\{[^{}]*\}|\\[a-z]+|[^\\{]) ?){0,2})(?!\()"
)
_ARGUMENT = re.compile(
    rf"(?P<open>[({{\[])|(?P<close>[)}}\]])|(?P<times>\\(?:cdot|times|div)(?![a-z])|\*|/(?= ?{_NAME}))"
    r"|(?P<end>[-+,;=<>&|])"
)


class UnreadableError(Exception):
    """The answer cannot be parsed, or the reference, which is a fault of the problem."""

    def __init__(self, fault: str, of_reference: bool = False) -> None:
        super().__init__(fault)
        self.of_reference = of_reference


def parse_both(reference: str, answer: str) -> tuple[Any, Any]:
    """Both texts as SymPy objects, with one reading of letters (UnreadableError)."""
    real = not (should_treat_as_complex(reference) or should_treat_as_complex(answer))
    lower = not _mixes_cases(reference) and not _mixes_cases(answer)
    try:
        gold = parse(reference, real, lower)
    except Exception as error:
        raise UnreadableError(one_line(error), of_reference=True) from None
    try:
        return gold, parse(answer, real, lower)
    except Exception as error:
        raise UnreadableError(one_line(error)) from None


def one_line(error: Exception) -> str:
    """Return an error as evidence."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _mixes_cases(text: str) -> bool:
    """True when a letter occurs both as a capital and small, so that the two mean different things."""
    letters = set(re.sub(r"\\[a-zA-Z]+", "", text))
    return any(char.isupper() and char.lower() in letters for char in letters)


@lru_cache(maxsize=4096)
def parse(text: str, real: bool, lower: bool) -> Any:
    """One text; `lower` makes no difference between capital and small letters. Raises whatever the grammar raises."""
    for pattern, letter in _LETTERS:
        text = pattern.sub(letter, text)
    if _MISREAD.search(text):
        raise ValueError("gcd, lcm, nabla, a prime not behind a letter or the subscript of a number is not read")
    latex = normalize_latex(text, _NORMALISATION)
    latex = _SLASHED.sub(r"\\frac{\1}{\2}", latex)
    for match in _MIXED.finditer(latex):
        if not 0 < int(match["top"]) < int(match["bottom"]):
            raise ValueError(f"{match[0]} may be a sum or a product")
    latex = _MIXED.sub(r"(\g<whole>+\\frac{\g<top>}{\g<bottom>})", latex)
    # brackets around the arguments of functions that a multiplication sign ends: `\ln 2 \cdot 3` is three times a
    # logarithm; the grammar would read the logarithm of six
    for function in reversed(list(_FUNCTION.finditer(latex))):
        if (end := _argument_end(latex, function.end())) is not None:
            latex = f"{latex[: function.end()]}({latex[function.end() : end]}){latex[end:]}"
    converter = _Converter(is_real=real, convert_degrees=True, config=ConversionConfig(lowercase_symbols=lower))
    expression = converter.parse(latex)
    # the derivative of an unknown function is another unknown; the grammar takes the function for a constant
    unknown = {
        term: sp.Symbol(f"d{term.expr}/d{','.join(map(str, term.variables))}", real=real)
        for term in (expression.atoms(sp.Derivative) if isinstance(expression, sp.Basic) else ())
        if (term.expr.is_Symbol and term.expr not in term.variables) or isinstance(term.expr, AppliedUndef)
    }
    return expression.xreplace(unknown) if unknown else expression


class _Converter(_Latex2Sympy):  # type: ignore[misc]
    """The converter of Math-Verify, but `2(3)` and `(2)(3)` are products; it would add them."""

    mode = PredictionMode.SLL

    def parse(self, latex_str: str) -> Any:
        """Parse by the fast prediction of ANTLR, whose successes agree with the full one; else by the full one."""
        try:
            return super().parse(latex_str)
        except Exception:
            if self.mode == PredictionMode.LL:
                raise
            self.mode = PredictionMode.LL
            return super().parse(latex_str)

    def parse_number(self, text: str) -> Any:
        return Rational(text.replace(",", ""))

    def create_parser(self, latex_str: str) -> Any:
        parser = super().create_parser(latex_str)
        parser._interp.predictionMode = self.mode
        return parser

    def convert_postfix_list(self, arr: Any, i: int = 0) -> Any:
        result = super().convert_postfix_list(arr, i)
        is_factor = i > 0 and getattr(result, "is_Rational", False)
        return Mul(result, 1, evaluate=False) if is_factor else result


def _argument_end(latex: str, start: int) -> int | None:
    depth, bar = 0, latex.find("|", start + 1) if latex[start : start + 1] == "|" else -1
    for mark in _ARGUMENT.finditer(latex, max(start, bar + 1)):
        depth += (mark["open"] is not None) - (mark["close"] is not None)
        if depth < 0 or (depth == 0 and (mark["times"] or (mark["end"] and mark.start() > start))):
            return mark.start() if mark["times"] else None
    return None


_SURE = 30  # digits beyond those in which a difference can hide
_SPARE = 20
_MOST_DIGITS, _MOST_GAMMA_DIGITS = 1000, 60
"""Digits carried at most; fewer where a gamma function has to be computed, which takes seconds for a thousand."""
_POINTS = 14
_ENOUGH = 6
"""Points at which two expressions must agree; fewer, where the domain is small, prove nothing below `_LEAST`."""
_LEAST = 3
_ARITHMETIC = (sp.Add, sp.Mul, sp.Pow, sp.factorial, sp.binomial)
_WHOLE = (sp.floor, sp.ceiling, sp.factorial, sp.binomial, sp.Mod)
_INDEX = re.compile(r"[d-npqst](?:_.*)?")  # letters that stand for whole numbers when a formula suggests it


def agree(gold: sp.Expr, value: sp.Expr, digits: float) -> bool | None:
    """Compare two expressions; None when their values do not tell."""
    gold, value = _prepare(gold), _prepare(value)
    if gold.has(sp.nan, sp.zoo, sp.oo, -sp.oo) or value.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
        gold, value = gold.doit(), value.doit()
        return bool(gold == value) and gold in (sp.oo, -sp.oo)
    if _is_rational(gold) and _is_rational(value):
        return bool(gold.doit() == value.doit())
    num_agreed, digits = 0, _max_digits(gold, value, digits)
    for left, right in _values(gold, value, digits):
        if not _are_close(left, right, digits):
            return False
        num_agreed += 1
    return True if num_agreed >= (_LEAST if gold.free_symbols | value.free_symbols else 1) else None


def constant_ratio(gold: sp.Expr, value: sp.Expr, digits: float) -> Any | None:
    """The factor by which two expressions differ everywhere; None when they differ by no constant factor."""
    gold, value = _prepare(gold), _prepare(value)
    ratio, num_agreed, digits = None, 0, _max_digits(gold, value, digits)
    for left, right in _values(gold, value, digits):
        if left == 0 or right == 0:
            if left != right:
                return None
            continue
        with mpmath.workdps(_precision(digits)):
            ratio = left / right if ratio is None else ratio
            if not _are_close(left, ratio * right, digits):
                return None
        num_agreed += 1
    return ratio if num_agreed >= (_LEAST if gold.free_symbols | value.free_symbols else 1) else None


def rounds(exact: sp.Expr, decimal: Fraction, places: int) -> bool:
    """True when a decimal with this many places is the exact number, rounded or cut."""
    with mpmath.workdps(places + _SURE):
        value = evaluate(_prepare(exact), {})
        if not isinstance(value, mpmath.mpf):
            return False
        approximation = mpmath.mpf(decimal.numerator) / decimal.denominator
        error = abs(value - approximation) * mpmath.mpf(10) ** places
        return bool(error <= 0.5 or (error < 1 and abs(approximation) < abs(value)))


def _is_rational(number: sp.Expr) -> bool:
    """True for what exact arithmetic computes: whole powers, factorials and the like of fractions."""
    if number.is_Rational:
        return True
    has_whole_power = not number.is_Pow or number.exp.is_Integer or number.exp.doit().is_Integer
    return bool(has_whole_power and number.func in _ARITHMETIC and all(map(_is_rational, number.args)))


def _prepare(expression: sp.Expr) -> sp.Expr:
    """Decimals as the fractions they are, `i` as the imaginary unit, applied unknown functions as letters."""
    rationals = {number: sp.Rational(str(number)) for number in expression.atoms(sp.Float)}
    letters = {symbol: sp.I for symbol in expression.free_symbols if symbol.name == "i"}
    expression = expression.xreplace(rationals | letters)
    calls = {call: sp.Symbol(str(call.doit()), real=True) for call in expression.atoms(AppliedUndef)}
    return expression.xreplace(calls)


def _values(gold: sp.Expr, value: sp.Expr, digits: int) -> Iterator[tuple[Any, Any]]:
    symbols = sorted(gold.free_symbols | value.free_symbols, key=lambda symbol: str(symbol.name))
    is_whole = _is_of_whole_numbers(gold) or _is_of_whole_numbers(value)
    is_whole = is_whole and all(_INDEX.fullmatch(symbol.name) for symbol in symbols)
    num_points = 0
    for index in range(_POINTS if symbols else 1):
        point = {}
        for symbol in symbols:  # whole, positive or negative by the point's index, different for each letter
            chance = zlib.crc32(f"{symbol.name}:{index}".encode())
            sign = -1 if index % 4 == 2 or (index % 4 == 1 and chance & 1 << 20) else 1
            point[symbol] = sign * (Fraction(1, 7) + Fraction(chance % 99991, 33331))
            if is_whole or index % 4 == 3:
                point[symbol] = Fraction(1 + chance % (9 + index))
        with mpmath.workdps(_precision(digits)):
            try:
                pair = evaluate(gold, point), evaluate(value, point)
            except (ArithmeticError, ValueError):
                continue
        yield pair
        num_points += 1
        if num_points == _ENOUGH:
            return


def _max_digits(gold: sp.Expr, value: sp.Expr, digits: float) -> int:
    has_gamma = gold.has(sp.factorial, sp.binomial, sp.gamma) or value.has(sp.factorial, sp.binomial, sp.gamma)
    return min(int(digits), _MOST_GAMMA_DIGITS if has_gamma else _MOST_DIGITS)


def _precision(digits: int) -> int:
    return _SURE + _SPARE + 2 * digits


def _are_close(left: Any, right: Any, digits: int) -> bool:
    with mpmath.workdps(_precision(digits)):
        # what is smaller than 10^-digits counts as zero; fractions, which may be as small, are compared exactly
        scale = max(abs(left), abs(right), mpmath.mpf(10) ** -digits)
        return bool(abs(left - right) <= scale * mpmath.mpf(10) ** -(_SURE + digits))


def _is_of_whole_numbers(expression: sp.Expr) -> bool:
    powers = expression.atoms(sp.Pow)
    return expression.has(*_WHOLE) or any(power.base.is_negative and power.exp.free_symbols for power in powers)


def evaluate(expression: sp.Expr, point: Mapping[sp.Symbol, Fraction]) -> Any:
    """A real or complex mpmath number, at the precision of the context (ValueError, or as mpmath raises: none)."""
    if expression.is_Symbol:
        value = point[expression]
        return mpmath.mpf(value.numerator) / value.denominator
    if expression.is_Rational:
        return mpmath.mpf(int(expression.p)) / int(expression.q)
    name = expression.func.__name__
    if name in _CONSTANTS:
        return +_CONSTANTS[name]
    parts = [evaluate(part, point) for part in expression.args]
    if name == "Pow":
        base, exponent = parts
        if mpmath.isint(exponent):
            return base ** int(exponent.real)
        if isinstance(base, mpmath.mpf) and base < 0 and expression.exp.is_Rational:
            if point:
                raise ValueError("readers differ")
            if expression.exp.q % 2:  # an odd root of a negative number is read as real: the third root of -8 is -2
                return (-1) ** int(expression.exp.p) * mpmath.power(-base, exponent)
        return mpmath.power(base, exponent)
    if name not in _FUNCTIONS or not parts:
        raise ValueError(f"{name} is not computed")
    return _FUNCTIONS[name](*parts)


def _logarithm(value: Any, base: Any = None) -> Any:
    if value == 0:
        raise ValueError("no logarithm")
    return mpmath.log(value) if base is None else mpmath.log(value) / mpmath.log(base)


def _on_reals(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        if any(isinstance(value, mpmath.mpc) and value.imag != 0 for value in values):
            raise ValueError("not real")
        return function(*(value.real for value in values))

    return call


_CONSTANTS = {
    "Pi": mpmath.pi, "Exp1": mpmath.e, "ImaginaryUnit": mpmath.mpc(0, 1), "EulerGamma": mpmath.euler,
    "GoldenRatio": mpmath.phi,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda *parts: mpmath.fsum(parts), "Mul": lambda *parts: mpmath.fprod(parts), "UnevaluatedExpr": lambda x: x,
    "Abs": abs, "exp": mpmath.exp, "log": _logarithm, "factorial": mpmath.factorial, "gamma": mpmath.gamma,
    "binomial": mpmath.binomial, "floor": _on_reals(mpmath.floor), "ceiling": _on_reals(mpmath.ceil),
    "Mod": _on_reals(lambda value, modulus: value - modulus * mpmath.floor(value / modulus)),
    "Max": _on_reals(max), "Min": _on_reals(min), "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan,
    "cot": mpmath.cot, "sec": mpmath.sec, "csc": mpmath.csc, "asin": mpmath.asin, "acos": mpmath.acos,
    "atan": mpmath.atan, "acot": mpmath.acot, "asec": mpmath.asec, "acsc": mpmath.acsc, "sinh": mpmath.sinh,
    "cosh": mpmath.cosh, "tanh": mpmath.tanh, "asinh": mpmath.asinh, "acosh": mpmath.acosh, "atanh": mpmath.atanh,
}  # fmt: skip
