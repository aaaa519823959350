"""LaTeX into SymPy by the grammar of Math-Verify; what that grammar reads wrongly is corrected or refused.

No text of a model ever reaches `eval`, `sympify`, `parse_expr` or `lambdify`.
"""

import re
from functools import lru_cache
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended import NormalizationConfig, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from math_verify.grader import should_treat_as_complex
from sympy import Mul, Rational

_NORMALISATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_MISREAD = re.compile(r"[a-zA-Z}]'|\\(?:gcd|lcm)(?![a-z])|\\text ?\{ ?(?:gcd|lcm) ?\}|[0-9] ?_")
_MIXED = re.compile(
    r"(?<![_^0-9.])(?P<whole>[0-9]{1,99}) ?\\frac ?\{ ?(?P<top>[0-9]{1,99}) ?\} ?\{ ?(?P<bottom>[0-9]{1,99}) ?\}"
)
_SLASHED = re.compile(
    r"(?<![0-9.^_}/])([0-9]{1,99}(?:\.[0-9]{1,99})?) ?/ ?([0-9]{1,99}(?:\.[0-9]{1,99})?)(?= ?[a-zA-Z\\(])"
)
"""`1/2x` is half of x, as at school."""
_FUNCTION = re.compile(
    r"(?>\\(?:(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|ln|log)(?![a-zA-Z]) ?"
    r"(?:[\^_] ?(?:\{[^{}]*\}|\\[a-z]+|[^\\{]) ?){0,2})(?!\()"
)
_ARGUMENT = re.compile(
    r"(?P<open>[({\[])|(?P<close>[)}\]])|(?P<times>\\(?:cdot|times|div)(?![a-z])|\*)|(?P<end>[-+,;=<>&|])"
)


class UnreadableReferenceError(Exception):
    """The reference cannot be parsed; a fault of the problem, not of the answer."""


class UnreadableAnswerError(Exception):
    """The answer cannot be parsed."""


def parse_alike(reference: str, answer: str) -> tuple[Any, Any]:
    """Both texts as SymPy objects, with one reading of letters (UnreadableReferenceError, UnreadableAnswerError)."""
    real = not (should_treat_as_complex(reference) or should_treat_as_complex(answer))
    lower = not _mixes_cases(reference) and not _mixes_cases(answer)
    try:
        gold = parse(reference, real, lower)
    except Exception as error:
        raise UnreadableReferenceError(one_line(error)) from None
    try:
        return gold, parse(answer, real, lower)
    except Exception as error:
        raise UnreadableAnswerError(one_line(error)) from None


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
    if _MISREAD.search(text):
        raise ValueError("a prime, gcd, lcm or the subscript of a number is not read")
    latex = normalize_latex(text, _NORMALISATION)
    latex = _SLASHED.sub(r"\\frac{\1}{\2}", latex)
    for match in _MIXED.finditer(latex):
        if not 0 < int(match["top"]) < int(match["bottom"]):
            raise ValueError(f"{match[0]} may be a sum or a product")
    latex = _MIXED.sub(r"(\g<whole>+\\frac{\g<top>}{\g<bottom>})", latex)
    # brackets around the arguments of functions that a multiplication sign ends: `\ln 2 \cdot 3` is three times a
    # logarithm; the grammar would read the logarithm of six
    for function in reversed(list(_FUNCTION.finditer(latex))):
        end = _argument_end(latex, function.end())
        if end is not None:
            latex = f"{latex[: function.end()]}({latex[function.end() : end]}){latex[end:]}"
    converter = _Converter(is_real=real, convert_degrees=True, config=ConversionConfig(lowercase_symbols=lower))
    return converter.parse(latex)


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
