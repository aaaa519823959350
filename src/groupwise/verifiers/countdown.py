"""Countdown: reach a target from given integers with + - * / and parentheses, each number used exactly once.

The expression is read by its own parser over exact fractions: nothing is evaluated as code, and there is no power, no
floor division, no unary sign and no gluing of digits to exploit.
"""

import operator
import re
from collections.abc import Sequence
from fractions import Fraction

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding, data_list
from groupwise.verifiers.logic import ExactVerifier, UnreadableError

MAX_LENGTH = 1000
MAX_NESTING = 50
_SPELLINGS = [("\\left", ""), ("\\right", ""), ("\\times", "*"), ("\\cdot", "*"), ("\\div", "/"), ("$", ""),
              ("×", "*"), ("·", "*"), ("÷", "/"), ("−", "-")]  # fmt: skip
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_TOKEN = re.compile(r"\s*([0-9]{1,12}(?![0-9])|[-+*/()])")


class CountdownVerifier(ExactVerifier):
    """Needs `problem.data["numbers"]` (integers) and `problem.data["target"]` (an integer)."""

    def find(self, problem: Problem, answer: str) -> Finding:
        target = problem.data.get("target")
        try:
            numbers = data_list(problem, "numbers", int)
            if type(target) is not int:
                raise ValueError(f"its target is {target!r:.60}; a whole number is needed")
        except ValueError as error:
            return Finding(Outcome.CRASHED, f"problem {problem.id} has no usable numbers and target: {error}")
        tokens, tail = read(answer)
        value, terms = evaluate(tokens)
        fault = ""
        if sorted(terms) != sorted(numbers):
            fault = f"it uses {sorted(terms)}, but each of {sorted(numbers)} must be used exactly once"
        elif value is None:
            fault = "it divides by zero"
        elif value != target:
            fault = f"it equals {value}, not {target}"
        elif tail not in (None, target):
            fault = f"it claims to equal {tail}, not {target}"
        return Finding(Outcome.WRONG if fault else Outcome.CORRECT, fault or f"it equals {target}", "".join(tokens))


def read(answer: str) -> tuple[list[str], int | None]:
    """Read the tokens of the expression, and the value claimed after an equals sign if there is one."""
    if len(answer) > MAX_LENGTH:
        raise UnreadableError(f"the answer has {len(answer)} characters, at most {MAX_LENGTH} are read")
    for spelling, symbol in _SPELLINGS:
        answer = answer.replace(spelling, symbol)
    expression, equals, tail = answer.partition("=")
    if equals and not re.fullmatch(r"\s*-?[0-9]{1,30}\s*", tail):
        raise UnreadableError(f"after '=' comes {tail.strip()[:40]!r}; only a number is allowed there")
    text, tokens, position = expression.rstrip(), list[str](), 0
    while position < len(text):
        if (match := _TOKEN.match(text, position)) is None:
            raise UnreadableError(f"{text[position:].strip()[:20]!r} is not a number, + - * / or a parenthesis")
        tokens.append(match[1])
        position = match.end()
    return tokens, int(tail) if equals else None


def evaluate(tokens: Sequence[str]) -> tuple[Fraction | None, list[int]]:
    """Exact value (None after a division by zero) and the numbers used."""
    parser = _Parser(tokens)
    value = parser.total(0)
    if parser.peek():
        raise UnreadableError(f"{parser.peek()!r} where an operator or the end was expected")
    return value, [int(number) for number in parser.numbers]


class _Parser:
    """Recursive descent: total = product (+|- product)*, product = atom (*|/ atom)*, atom = number | ( total )."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens, self._position = tokens, 0
        self.numbers: list[Fraction] = []

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.peek()
        self._position += 1
        return token

    def total(self, depth: int, signs: Sequence[str] = ("+", "-")) -> Fraction | None:
        def part() -> Fraction | None:
            return self._atom(depth) if "*" in signs else self.total(depth, ("*", "/"))

        value = part()
        while (sign := self.peek()) in signs:
            self._take()
            other = part()
            is_open = value is None or other is None or (sign == "/" and other == 0)
            value = None if is_open else _OPERATIONS[sign](value, other)
        return value

    def _atom(self, depth: int) -> Fraction | None:
        token = self._take()
        if token[:1].isdigit():
            self.numbers.append(Fraction(int(token) if token.isdecimal() else token))
            return self.numbers[-1]
        if token != "(" or depth >= MAX_NESTING:
            raise UnreadableError(f"{token or 'the end'!r} where a number or '(' was expected")
        value = self.total(depth + 1)
        if self._take() != ")":
            raise UnreadableError("a parenthesis is not closed")
        return value
