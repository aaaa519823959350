"""Tool `calculator`: `<<45×77=` is a call, and `3465>>` is put in after it (the notation of GSM8K's annotations)."""

import ast
import operator
import re
from collections.abc import Sequence
from fractions import Fraction

from groupwise.rollout.tools.base import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.types import CallOutcome

MAX_CHARACTERS = 200
"""Longest expression."""
MAX_BITS = 4096
"""Size of the numerator and the denominator of any number on the way."""
MAX_PLACES = 12
"""Most digits behind the point; a number with more of them is written as a fraction."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?P<percent>\s*%)?|(?P<sign>\*\*|[-+×*÷/^()−$·]))"
)
_SIGNS = {"×": "*", "·": "*", "÷": "/", "^": "**", "−": "-", "$": ""}  # a currency says nothing about the number


class ExpressionError(ValueError):
    """An expression without a value; says why."""


def value_of(text: str) -> Fraction:
    """Return the exact value of an expression; raises ExpressionError.

    >>> value_of("1/3+1/6")
    Fraction(1, 2)
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"{len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    numbers, tokens, at = list[Fraction](), list[str](), 0
    while at < len(text.rstrip()):
        if (match := _TOKEN.match(text, at)) is None:
            raise ExpressionError(f"{text[at:].strip()[0]!r} is no part of an expression")
        if match["number"]:
            tokens.append(f"n{len(numbers)}")
            numbers.append(Fraction(match["number"].replace(",", "")) / (100 if match["percent"] else 1))
        else:
            tokens.append(_SIGNS.get(match["sign"], match["sign"]))
        at = match.end()
    try:
        return _value(ast.parse(" ".join(tokens).strip(), mode="eval").body, numbers)
    except (SyntaxError, MemoryError, RecursionError):  # the last two: too much within one another
        raise ExpressionError("a number or a bracket is missing, or one too many") from None
    except ZeroDivisionError:
        raise ExpressionError("division by zero") from None


def written(value: Fraction) -> str:
    """A number as people write it: an integer, a short decimal that ends, or a fraction in lowest terms.

    >>> written(Fraction(7, 2)), written(Fraction(-7, 3))
    ('3.5', '-7/3')
    """
    twos, rest = _powers(value.denominator, 2)
    fives, rest = _powers(rest, 5)
    places = max(twos, fives)
    if rest != 1 or places > MAX_PLACES:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(places + 1)
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def _powers(number: int, prime: int) -> tuple[int, int]:
    count = 0
    while number % prime == 0:
        number, count = number // prime, count + 1
    return count, number


def _value(node: ast.expr, numbers: Sequence[Fraction]) -> Fraction:
    if isinstance(node, ast.Name):
        return numbers[int(node.id[1:])]
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, numbers)
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        raise ExpressionError("a sign before a bracket, or a number in it, is missing")
    signs = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
    value = Fraction(signs.get(type(node.op), _power)(_value(node.left, numbers), _value(node.right, numbers)))
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError(f"a number has more than {MAX_BITS} bits")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ExpressionError("a power needs a whole exponent")
    if base in (1, -1):
        return base ** int(exponent % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * (bits - 1) > MAX_BITS:
        raise ExpressionError(f"the result has more than {MAX_BITS} bits")
    return Fraction(base ** int(exponent))


BEGIN, END = "<<", ">>"
_FENCE = re.compile(r"\n[ \t]*```")
ERROR = "error"
"""Stands for a result where there is none."""


class CalculatorConfig(ToolConfig):
    """Settings of the calculator."""

    kind: str = "calculator"
    """`calculator`"""
    max_result_tokens: int = 24
    """Most tokens of one result, `>>` included. A longer one is `error`: half a number would be a wrong one."""


class Calculator(Tool):
    """Exact fractions, in this process, in microseconds."""

    Config = CalculatorConfig
    immediate = True
    may_be_cut = False
    too_long = ERROR
    opens = "<"
    closes = "=<>"

    def look(self, text: str) -> Call | Fault | None:
        begin = text.find(BEGIN)
        if begin < 0:
            return None
        content = text[begin + len(BEGIN) :]
        expression, equals, rest = content.partition("=")
        if BEGIN in expression:
            return Fault("a call within a call")
        if END in expression:
            return Fault("a call that was closed before it had a result")
        if rest:
            return Fault("a result that the calculator did not write")
        if len(expression) > MAX_CHARACTERS:
            return Fault(f"a call of more than {MAX_CHARACTERS} characters")
        return Call(expression, begin, closing=END) if equals else None

    def begins(self, text: str) -> int | None:
        begin = text.find(BEGIN)
        return None if begin < 0 or _FENCE.search(text[begin:].partition("=")[0]) else begin

    def stops(self, text: str) -> tuple[str, ...]:
        return ("=", BEGIN, END) if BEGIN in text else (BEGIN,)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        try:
            return ToolResult(written(value_of(call)), CallOutcome.DONE)
        except ExpressionError as error:
            return ToolResult(ERROR, CallOutcome.ERROR, evidence=str(error))


def calculator(expression: str) -> str:
    """Compute an expression exactly.

    Args:
        expression: numbers, brackets and + - * / ** %, for example (3 + 4) * 2.5
    """
    return written(value_of(expression))
