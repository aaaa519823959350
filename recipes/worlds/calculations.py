"""Calculations of other kinds than products: totals, signed chains, remainders, fractions; and steps written out."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import count
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import CHAIN_LENGTH, calculate, pair_content
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Problem

NumberKind = Literal["total", "signed_chain", "remainder", "fraction", "small_product"]
TOTAL_LENGTH = 5
"""Numbers in a total."""
MAX_DENOMINATOR = 12
SMALL_DIGITS = range(1, 7)
"""Digits of the factors of a small product."""


class NumbersConfig(GeneratedConfig):
    """Dials of the calculations."""

    kinds: tuple[NumberKind, ...] = Field(
        default=("total", "signed_chain", "remainder", "fraction", "small_product"), min_length=1
    )
    """Kinds of problems, in turn: `total` (of five two-digit numbers), `signed_chain` (sums and differences that go
    below zero), `remainder` (of a division by 3 to 9), `fraction` (sum, difference or product), `small_product` (three
    by two digits, none above 6)."""


class Numbers(GeneratedTask):
    """Problems such as `What is 12 - 45 + 7 - 30?` and `What is the remainder of 347 ÷ 6?`."""

    name: ClassVar[str] = "numbers"
    verifier: ClassVar[str] = "number"
    Config = NumbersConfig
    config: NumbersConfig

    def candidates(self) -> Iterator[Candidate]:
        kinds = tuple(dict.fromkeys(self.config.kinds))
        for index in count():
            for kind in kinds:
                yield draw_numbers(Draw("numbers", kind, index), kind)


def draw_numbers(draw: Draw, kind: NumberKind) -> Candidate:
    """A problem of a kind; `data` holds the `kind` and its `numbers`, and the `signs` or the `sign` between them."""
    match kind:
        case "total":
            numbers = [draw.integer(11, 99) for _ in range(TOTAL_LENGTH)]
            problem = _problem(kind, f"What is {' + '.join(map(str, numbers))}?", sum(numbers), numbers=numbers)
            return f"total {' '.join(map(str, sorted(numbers)))}", problem
        case "remainder":
            dividend, divisor = draw.integer(100, 999), draw.integer(3, 9)
            question = f"What is the remainder of {dividend} ÷ {divisor}?"
            problem = _problem(kind, question, dividend % divisor, numbers=[dividend, divisor])
            return f"remainder {dividend} {divisor}", problem
        case "small_product":
            left, right = (
                int("".join(str(draw.choice(SMALL_DIGITS)) for _ in range(num_digits))) for num_digits in (3, 2)
            )
            problem = _problem(kind, f"What is {left} × {right}?", left * right, numbers=[left, right])
            return pair_content("product", left, right), problem
        case "signed_chain":
            while True:
                numbers = [draw.integer(2, 99) for _ in range(CHAIN_LENGTH)]
                signs = [draw.choice("+-") for _ in range(CHAIN_LENGTH - 1)]
                results = partial_results(numbers, signs)
                if min(results) < 0:
                    break
            text = str(numbers[0]) + "".join(f" {sign} {n}" for sign, n in zip(signs, numbers[1:], strict=True))
            problem = _problem(kind, f"What is {text}?", results[-1], numbers=numbers, signs=signs)
            return f"signed chain {text}", problem
        case "fraction":
            while True:
                first, second = _draw_fraction(draw), _draw_fraction(draw)
                sign = draw.choice("+-×")
                if sign == "-" and Fraction(*first) < Fraction(*second):
                    first, second = second, first
                if sign != "-" or Fraction(*first) != Fraction(*second):
                    break
            value = calculate_fractions(sign, Fraction(*first), Fraction(*second))
            question = f"What is {first[0]}/{first[1]} {sign} {second[0]}/{second[1]}?"
            problem = _problem(kind, question, value, numbers=[*first, *second], sign=sign)
            return fraction_content(sign, first, second), problem


def partial_results(numbers: list[int], signs: list[str]) -> list[int]:
    """Return the value of the chain after each sign."""
    results, value = list[int](), numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        value = calculate(sign, value, number)
        results.append(value)
    return results


def fraction_content(sign: str, left: tuple[int, int], right: tuple[int, int]) -> str:
    """Return what decides the split of a problem with two fractions; their order does not count."""
    low, high = sorted((left, right))
    return f"fraction {low[0]}/{low[1]} {sign} {high[0]}/{high[1]}"


def calculate_fractions(sign: str, left: Fraction, right: Fraction) -> Fraction:
    """The value of one operation on fractions."""
    return {"+": left + right, "-": left - right, "×": left * right}[sign]


def _draw_fraction(draw: Draw) -> tuple[int, int]:
    denominator = draw.integer(2, MAX_DENOMINATOR)
    return draw.integer(1, denominator - 1), denominator


def _problem(kind: NumberKind, question: str, answer: object, **data: object) -> Problem:
    name = question.removeprefix("What is ").removesuffix("?").replace(" ", "").replace("×", "x").replace("÷", ":")
    return Problem(f"numbers/{name}", question, str(answer), kind.replace("_", " "), data={"kind": kind, **data})
