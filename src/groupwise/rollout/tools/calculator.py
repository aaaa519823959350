"""Tool `calculator`: `<<45×77=` is a call, and `3465>>` is put in after it (the notation of GSM8K's annotations)."""

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
MAX_DEPTH = 32
"""Brackets and signs within one another."""

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)|(?P<sign>\*\*|[-+×*÷/^()%−$·]))")
_SIGNS = {"×": "*", "·": "*", "÷": "/", "^": "**", "−": "-"}


class ExpressionError(ValueError):
    """An expression without a value; says why."""


def value_of(text: str) -> Fraction:
    """Return the exact value of an expression; raises ExpressionError.

    >>> value_of("1/3+1/6")
    Fraction(1, 2)
    """
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"{len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    return _Parser(_tokens(text)).whole()


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


def _tokens(text: str) -> list[str]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionError(f"{text[at:].strip()[0]!r} is no part of an expression")
        token = match["number"] or _SIGNS.get(match["sign"], match["sign"])
        if token != "$":  # a currency sign says nothing about the number
            tokens.append(token)
        at = match.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def whole(self) -> Fraction:
        value = self._sum()
        if self._at < len(self._tokens):
            raise ExpressionError(f"{self._next!r} is not expected there")
        return value

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *options: str) -> str:
        token = self._next
        if token not in options or not token:
            return ""
        self._at += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = _bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._factor()
        while sign := self._take("*", "/"):
            other = self._factor()
            if sign == "/" and not other:
                raise ExpressionError("division by zero")
            value = _bounded(value * other if sign == "*" else value / other)
        return value

    def _factor(self) -> Fraction:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"more than {MAX_DEPTH} brackets and signs within one another")
        sign = self._take("+", "-")
        value = self._power() if not sign else self._factor() * (-1 if sign == "-" else 1)
        self._depth -= 1
        return value

    def _power(self) -> Fraction:
        base = self._atom()
        if not self._take("**"):
            return base
        exponent = self._factor()
        if exponent.denominator != 1:
            raise ExpressionError("a power needs a whole exponent")
        if not base and exponent < 0:
            raise ExpressionError("division by zero")
        if base in (0, 1, -1):
            return base ** int(exponent % 2 + 2) if exponent else Fraction(1)
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent) * (bits - 1) > MAX_BITS:
            raise ExpressionError(f"the result has more than {MAX_BITS} bits")
        return _bounded(Fraction(base ** int(exponent)))

    def _atom(self) -> Fraction:
        if self._take("("):
            value = self._sum()
            if not self._take(")"):
                raise ExpressionError("a bracket is not closed")
            return value
        token = self._next
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise ExpressionError(
                f"a number is missing before {token!r}" if token else "a number is missing at the end"
            )
        self._at += 1
        value = Fraction(token.replace(",", ""))
        return value / 100 if self._take("%") else value


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ExpressionError(f"a number has more than {MAX_BITS} bits")
    return value


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
