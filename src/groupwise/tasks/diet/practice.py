"""Single steps of the workings of new families as problems of their own: what a working needs, asked alone.

A step is not a problem of any split: a sum or difference of two numbers that the task `arithmetic` has is of its train
split, and fractions are only written in other terms.
"""

from collections.abc import Callable
from fractions import Fraction

from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Kind, calculate, pair_content
from groupwise.tasks.base import split_of
from groupwise.tasks.corpus import Written
from groupwise.tasks.diet.ways import think
from groupwise.tasks.numbers import MAX_DENOMINATOR
from groupwise.types import Problem


def practice(draw: Draw, mix: object) -> Written:
    """One step, always right."""
    name, write = draw.choice(list(_STEPS.items()))
    expression, result = write(draw)
    question = f"What is {expression}?"
    equation = f"{expression.replace(' ', '')}={result}"
    return Problem(f"practice/{expression}", question, result), think(f"{equation}.", result), name


def _signed(draw: Draw) -> tuple[str, str]:
    """A step of a signed chain."""
    while True:
        left, right, sign = draw.integer(-200, 120), draw.integer(2, 99), draw.choice("+-")
        if left and _is_free(sign, left, right):
            return f"{left} {sign} {right}", str(calculate(sign, left, right))


def _running(draw: Draw) -> tuple[str, str]:
    """A step of a total."""
    while True:
        left, right = draw.integer(11, 420), draw.integer(11, 99)
        if _is_free("+", left, right):
            return f"{left} + {right}", str(left + right)


def _rest(draw: Draw) -> tuple[str, str]:
    """What a multiple of a divisor leaves."""
    while True:
        divisor, dividend = draw.integer(3, 9), draw.integer(10, 999)
        tens = dividend // divisor // 10 * 10 or dividend // divisor
        if tens and _is_free("-", dividend, divisor * tens):
            return f"{dividend} - {divisor * tens}", str(dividend - divisor * tens)


def _other_terms(draw: Draw) -> tuple[str, str]:
    """A fraction over a multiple of its denominator; read backwards, in lowest terms."""
    bottom = draw.integer(2, MAX_DENOMINATOR)
    top, factor = draw.integer(1, bottom - 1), draw.integer(2, MAX_DENOMINATOR)
    return f"{top * factor}/{bottom * factor}", str(Fraction(top, bottom))


def _is_free(sign: str, left: int, right: int) -> bool:
    """Whether no dev or test problem of two operands is stated."""
    kind: Kind = "sum" if sign == "+" else "difference"
    return left < 0 or split_of(pair_content(kind, left, right)) == "train"


_STEPS: dict[str, Callable[[Draw], tuple[str, str]]] = {
    "signed": _signed,
    "running": _running,
    "rest": _rest,
    "other_terms": _other_terms,
}
