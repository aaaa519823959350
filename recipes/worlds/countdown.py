"""Countdown: combine given numbers, each used exactly once, into a target with + - × ÷.

Every problem is made from a solution, so it is solvable; any solution counts, and the verifier checks it exactly, over
fractions. Nothing is evaluated as code, and there is no power, no floor division, no unary sign and no gluing of digits
to exploit. No step of a problem multiplies two numbers of two digits: those products are the
arithmetic task's problems, and some of them are held out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Step, calculate
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding, data_list
from groupwise.verifiers.exact import ExactVerifier, UnreadableError
from groupwise.verifiers.steps import evaluate

MAX_VALUE = 12
"""Largest number to combine; the smallest is 1."""
TARGETS = (10, 100)
"""The smallest target and the largest."""


class CountdownConfig(GeneratedConfig):
    """Dials of the countdown task."""

    min_numbers: int = Field(default=3, ge=2, le=6)
    """Fewest numbers in a problem."""
    max_numbers: int = Field(default=4, ge=2, le=6)
    """Most numbers in a problem."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if (low := self.min_numbers) > (high := self.max_numbers):
            raise ValueError(f"min_numbers = {low} is above max_numbers = {high}; at most {high} is allowed")
        return self


class Countdown(GeneratedTask):
    """Problems such as `Using 3, 5 and 2 once each, make 16.`."""

    name: ClassVar[str] = "countdown"
    verifier: ClassVar[str] = "countdown"
    answers_any_question: ClassVar[bool] = False
    Config = CountdownConfig
    config: CountdownConfig

    def candidates(self) -> Iterator[Candidate]:
        for index in count():
            yield draw_countdown(Draw("countdown", index), self.config)


@dataclass(frozen=True, slots=True)
class Expression:
    """A number made from others."""

    text: str
    value: int
    sign: str = ""


def draw_countdown(draw: Draw, config: CountdownConfig) -> Candidate:
    """A problem with a solution; its content is the sorted numbers and the target."""
    while True:
        num_numbers = draw.integer(config.min_numbers, config.max_numbers)
        numbers = [draw.integer(1, MAX_VALUE) for _ in range(num_numbers)]
        solution, steps = combine(draw, numbers)
        if TARGETS[0] <= solution.value <= TARGETS[1]:
            break
    name = f"{'-'.join(map(str, sorted(numbers)))}={solution.value}"
    listing = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    problem = Problem(
        id=f"countdown/{name}",
        question=f"Using {listing} once each, make {solution.value}.",
        reference=solution.text,
        difficulty=f"countdown {len(numbers)}",
        data={"numbers": numbers, "target": solution.value, "steps": steps},
    )
    return f"countdown {name}", problem


_LOOSE_SIGNS = {"+": ("", ""), "-": ("", "+-"), "×": ("+-÷", "+-÷"), "÷": ("+-", "+-×÷")}
"""By sign, the signs of its left and its right operand that need parentheses."""


def combine(draw: Draw, numbers: list[int]) -> tuple[Expression, tuple[Step, ...]]:
    """One random way to combine all the numbers, and its steps; every intermediate result is a positive integer."""
    pool = [Expression(str(number), number) for number in numbers]
    steps: list[Step] = []
    while len(pool) > 1:
        left, right, *rest = draw.shuffled(pool)
        sign = draw.choice([sign for sign in "+-×÷" if allowed(sign, left.value, right.value)])
        value = calculate(sign, left.value, right.value)
        steps.append((sign, left.value, right.value, value))
        # factors that are quotients keep parentheses, so that no two numbers meet by accident
        loose, loose_right = _LOOSE_SIGNS[sign]
        text = f"{_enclose(left, loose)}{sign}{_enclose(right, loose_right)}"
        pool = [*rest, Expression(text, value, sign)]
    return pool[0], tuple(steps)


def allowed(sign: str, left: int, right: int) -> bool:
    """True for a step to a positive integer that changes something and is no product that may be held out."""
    if sign == "-":
        return left > right
    if sign == "÷":
        return right > 1 and left % right == 0 and min(right, left // right) < 10
    if sign == "×":
        return 1 < min(left, right) < 10
    return True


def _enclose(expression: Expression, loose_signs: str) -> str:
    return f"({expression.text})" if expression.sign and expression.sign in loose_signs else expression.text


MAX_LENGTH = 1000  # characters of an answer
_SPELLINGS = [("\\left", ""), ("\\right", ""), ("\\times", "*"), ("\\cdot", "*"), ("\\div", "/"), ("$", ""),
              ("×", "*"), ("·", "*"), ("÷", "/"), ("−", "-")]  # fmt: skip
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
        value, terms = evaluate(tokens), [int(token) for token in tokens if token.isdigit()]
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
