"""Arithmetic problems with exact answers: products, sums, differences and chains of operations.

The splits are disjoint in content: 23 × 17 and 17 × 23 are in the same split. Operands of two or more digits are
never multiples of ten, so that a step of written-out working such as 47×80 is never itself a held-out problem.
"""

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from groupwise.randomness import Draw, permutation
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.types import Problem

Kind = Literal["product", "sum", "difference", "chain"]
Step = tuple[str, int, int, int]
"""One operation of a solution: sign, left operand, right operand, result."""

SIGNS: dict[Kind, str] = {"product": "×", "sum": "+", "difference": "-"}
CHAIN_LENGTH = 4
"""Numbers in a chain, signed or not."""
MAX_ENUMERATED = 10_000
"""Up to this many operand pairs all problems are listed and shuffled; above that, they are drawn one by one."""


class ArithmeticConfig(GeneratedConfig):
    """Dials of the arithmetic task."""

    kinds: tuple[Kind, ...] = Field(default=("product",), min_length=1)
    """Kinds of problems, in turn: `product`, `sum`, `difference`, `chain`."""
    digits: tuple[Annotated[int, Field(ge=1, le=5)], Annotated[int, Field(ge=1, le=5)]] = (2, 2)
    """Decimal digits of the two operands, 1 to 5 each. A chain's numbers have at most the first."""


class Arithmetic(GeneratedTask):
    """Arithmetic problems such as `What is 23 × 17?`."""

    name: ClassVar[str] = "arithmetic"
    verifier: ClassVar[str] = "number"
    Config = ArithmeticConfig
    config: ArithmeticConfig

    def candidates(self) -> Iterator[Candidate]:
        streams = [self._stream(kind) for kind in dict.fromkeys(self.config.kinds)]
        while streams:
            for stream in list(streams):
                if (candidate := next(stream, None)) is None:
                    streams.remove(stream)
                else:
                    yield candidate

    def _stream(self, kind: Kind) -> Iterator[Candidate]:
        if kind == "chain":
            return chains(self.config.digits[0], CHAIN_LENGTH)
        return map(partial(pair_problem, kind), operand_pairs(kind, *self.config.digits))


def operand_pairs(kind: Kind, left_digits: int, right_digits: int) -> Iterator[tuple[int, int]]:
    """All pairs of operands in a fixed random order, or endless draws where there are too many to list."""
    left, right = operands(left_digits), operands(right_digits)
    size = len(left) * len(right)
    if size <= MAX_ENUMERATED:
        for index in permutation(size, "arithmetic", kind, left_digits, right_digits).tolist():
            yield left[index // len(right)], right[index % len(right)]
        return
    for index in count():
        draw = Draw("arithmetic", kind, left_digits, right_digits, index)
        yield draw.choice(left), draw.choice(right)


def operands(digits: int) -> list[int]:
    """Numbers with this number of decimal digits, without multiples of ten."""
    return [number for number in range(10 ** (digits - 1), 10**digits) if number % 10]


def pair_content(kind: Kind, left: int, right: int) -> str:
    """Return what decides the split of a problem with two operands; their order does not count."""
    return f"{kind} {min(left, right)} {max(left, right)}"


def pair_problem(kind: Kind, pair: tuple[int, int]) -> Candidate:
    """A product, sum or difference; a difference takes the larger operand first."""
    left, right = sorted(pair, reverse=True) if kind == "difference" else pair
    sign = SIGNS[kind]
    problem = Problem(
        id=f"arithmetic/{left}{sign}{right}".replace("×", "x"),
        question=f"What is {left} {sign} {right}?",
        reference=str(calculate(sign, left, right)),
        difficulty=f"{kind} {len(str(left))}x{len(str(right))}",
        data={"steps": [(sign, left, right, calculate(sign, left, right))]},
    )
    return pair_content(kind, left, right), problem


def calculate(sign: str, left: int, right: int) -> int:
    """The value of one operation; a division must be exact."""
    if sign == "÷":
        assert left % right == 0, f"{left}÷{right} is not an integer"
        return left // right
    return {"+": left + right, "-": left - right, "×": left * right}[sign]


def chains(max_digits: int, length: int) -> Iterator[Candidate]:
    """Endless draws of chains."""
    for index in count():
        yield chain_problem(Draw("arithmetic", "chain", max_digits, length, index), max_digits, length)


def chain_problem(draw: Draw, max_digits: int, length: int) -> Candidate:
    """A chain such as `What is 12 + 5 × 3 - 4?` in which no intermediate result is negative."""
    while True:
        signs = [draw.choice("+-×") for _ in range(length - 1)]
        # a factor has one digit, so no chain contains a product of two longer numbers, which may be held out
        digits = [1 if sign == "×" else draw.integer(1, max_digits) for sign in ["+", *signs]]
        numbers = [draw.choice(operands(num_digits)) for num_digits in digits]
        steps = chain_steps(numbers, signs)
        if all(result >= 0 for *_, result in steps):
            break
    text = str(numbers[0]) + "".join(f" {sign} {number}" for sign, number in zip(signs, numbers[1:], strict=True))
    name = text.replace(" ", "").replace("×", "x")
    reference, label = str(steps[-1][3]), f"chain {length}"
    return f"chain {text}", Problem(f"arithmetic/{name}", f"What is {text}?", reference, label, data={"steps": steps})


def chain_steps(numbers: list[int], signs: list[str]) -> list[Step]:
    """The steps that work out a chain: products first, then sums and differences from left to right."""
    steps: list[Step] = []
    terms, term_signs = [numbers[0]], []
    for sign, number in zip(signs, numbers[1:], strict=True):
        if sign == "×":
            steps.append(("×", terms[-1], number, terms[-1] * number))
            terms[-1] *= number
        else:
            term_signs.append(sign)
            terms.append(number)
    total = terms[0]
    for sign, term in zip(term_signs, terms[1:], strict=True):
        steps.append((sign, total, term, calculate(sign, total, term)))
        total = steps[-1][3]
    return steps


def step(sign: str, left: int, right: int) -> Step:
    """One correct step."""
    return sign, left, right, calculate(sign, left, right)


def decompose(left: int, right: int) -> list[Step]:
    """A product by the tens and the units of the right factor."""
    tens, units = step("×", left, right // 10 * 10), step("×", left, right % 10)
    return [tens, units, step("+", tens[3], units[3])]


def slip(draw: Draw, number: int) -> int:
    """The number with one digit wrong; never negative, never the same, with the same number of digits."""
    digits = list(str(number))
    position = draw.integer(0, len(digits) - 1)
    lowest = 1 if position == 0 and len(digits) > 1 else 0
    digits[position] = str(draw.choice([digit for digit in range(lowest, 10) if str(digit) != digits[position]]))
    return int("".join(digits))
