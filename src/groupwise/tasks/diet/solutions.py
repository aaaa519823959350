"""How calculations are worked out in the second edition's corpus: steps, a mistake that suggests itself, one breath.

`solution` is exact; `ways` puts mistakes in. Steps never state a problem of a split: fractions over a common
denominator, for example, are added as plain numbers.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from groupwise.tasks import corpus_working as w
from groupwise.tasks.arithmetic import Step
from groupwise.tasks.numbers import partial_results
from groupwise.types import Problem


@dataclass(frozen=True, slots=True)
class Solution:
    """All that the ways need of a problem."""

    breath: str
    """The problem as one expression, for example `47+85-12`; in one breath it is followed by its result."""
    answer: str
    """The right answer."""
    steps: tuple[str, ...]
    """The working: equations without a full stop; the last one ends in the answer's digits."""
    misled: tuple[tuple[str, ...], str]
    """The steps and the answer of the mistake that suggests itself."""
    wrong_call: str
    """An expression with its exact value that is not the answer, for example `47+85=132`."""


def solution(problem: Problem) -> Solution:
    """The solution of a problem of the task `numbers`."""
    numbers = list(problem.data["numbers"])
    match problem.data["kind"]:
        case "total":
            return chain(numbers, ["+"] * (len(numbers) - 1))
        case "signed_chain":
            return chain(numbers, list(problem.data["signs"]))
        case "remainder":
            return remainder(*numbers)
        case "fraction":
            return fraction(problem.data["sign"], *numbers)
        case kind:
            assert kind == "small_product", f"no solution of a {kind} is written"
            return product(*numbers)


def written(steps: list[Step]) -> tuple[str, ...]:
    """Steps as equations."""
    return tuple(f"{left}{sign}{right}={result}" for sign, left, right, result in steps)


def chain(numbers: list[int], signs: list[str]) -> Solution:
    """From left to right. Misled: a difference below zero is taken the other way round, or the last number left out."""
    results = partial_results(numbers, signs)
    steps = _chain_steps(numbers, signs)
    unsigned, value = list[Step](), numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        high, low = (number, value) if sign == "-" and value < number else (value, number)
        unsigned.append(w.step(sign, high, low))
        value = unsigned[-1][3]
    if value == results[-1]:
        unsigned = _chain_steps(numbers[:-1], signs[:-1])
    text = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))
    shorter = text[: text.rindex(signs[-1])]
    misled = written(unsigned), str(unsigned[-1][3])
    return Solution(text, str(results[-1]), written(steps), misled, f"{shorter}={results[-2]}")


def _chain_steps(numbers: list[int], signs: list[str]) -> list[Step]:
    values = [numbers[0], *partial_results(numbers, signs)]
    return [w.step(sign, value, number) for sign, value, number in zip(signs, values, numbers[1:], strict=False)]


def remainder(dividend: int, divisor: int) -> Solution:
    """By tens of the divisor, then by units. Misled: the quotient is given."""
    quotient, rest = divmod(dividend, divisor)
    tens = quotient // 10 * 10
    steps = list[Step]()
    value = dividend
    for part in (tens, quotient - tens):
        if part:
            steps += [w.step("×", divisor, part), w.step("-", value, divisor * part)]
            value -= divisor * part
    whole = (f"{divisor}×{quotient}={divisor * quotient}",)
    wrong = quotient if quotient != rest else quotient + 1
    breath, wrong_call = f"{dividend}-{divisor}×{quotient}", f"{dividend}-{divisor}={dividend - divisor}"
    return Solution(breath, str(rest), written(steps), (whole, str(wrong)), wrong_call)


def fraction(sign: str, top: int, bottom: int, other_top: int, other_bottom: int) -> Solution:
    """Over a common denominator, then in lowest terms. Misled: tops and bottoms are each taken together."""
    left, right = f"{top}/{bottom}", f"{other_top}/{other_bottom}"
    if sign == "×":
        new_top, common = top * other_top, bottom * other_bottom
        steps = [*written([w.step("×", top, other_top), w.step("×", bottom, other_bottom)])]
        wrong_steps, wrong = [w.step("+", top, other_top)], Fraction(top + other_top, common)
    else:
        common = lcm(bottom, other_bottom)
        tops = top * common // bottom, other_top * common // other_bottom
        new_top = w.step(sign, *tops)[3]
        steps = [f"{left}={tops[0]}/{common}", f"{right}={tops[1]}/{common}", *written([w.step(sign, *tops)])]
        wrong_steps = [w.step("+", top, other_top), w.step("+", bottom, other_bottom)]
        wrong = Fraction(top + other_top, bottom + other_bottom)
    value = Fraction(new_top, common)
    in_full = f"{new_top}/{common}"
    steps.append(in_full if in_full == str(value) else f"{in_full}={value}")
    if wrong == value:
        wrong += 1
    misled = written(wrong_steps), str(wrong)
    wrong_call = f"{top}+{other_top}={top + other_top}"
    return Solution(f"{left}{sign}{right}", str(value), tuple(steps), misled, wrong_call)


def product(left: int, right: int) -> Solution:
    """By tens and units of the right factor. Misled: the zero of the tens is forgotten."""
    steps = w.decompose(left, right)
    forgetful = [w.step("×", left, right // 10), steps[1]]
    forgetful.append(w.step("+", forgetful[0][3], forgetful[1][3]))
    misled = written(forgetful), str(forgetful[-1][3])
    return Solution(f"{left}×{right}", str(left * right), written(steps), misled, f"{left}+{right}={left + right}")
