"""Calculations as the shipped base model read them: exact steps, the ways to write them, and single steps to practise.

A solution is exact; the ways put mistakes in. Steps never state a problem of a split: fractions over a common
denominator, for example, are added as plain numbers. A call is `<<expression=result>>`, one character per token: where
a tool would write what stands between `=` and `>>`, here it is text like any other.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import diet_working as w
from calculations import MAX_DENOMINATOR, partial_results
from diet_config import SECOND_SLIP, DietConfig
from groupwise.randomness import Draw
from groupwise.tasks.arithmetic import Kind, Step, calculate, decompose, pair_content, slip, step
from groupwise.tasks.base import split_of
from groupwise.types import Problem


@dataclass(frozen=True, slots=True)
class Solution:
    """All that the ways need of a problem."""

    breath: str
    """The problem as one expression, for example `47+85-12`; in one breath it is followed by its result."""
    answer: str
    steps: tuple[str, ...]
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


def equations(steps: list[Step]) -> tuple[str, ...]:
    """Steps as equations."""
    return tuple(f"{left}{sign}{right}={result}" for sign, left, right, result in steps)


def chain(numbers: list[int], signs: list[str]) -> Solution:
    """From left to right. Misled: a difference below zero is taken the other way round, or the last number left out."""
    results = partial_results(numbers, signs)
    steps = _chain_steps(numbers, signs)
    unsigned, value = list[Step](), numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        high, low = (number, value) if sign == "-" and value < number else (value, number)
        unsigned.append(step(sign, high, low))
        value = unsigned[-1][3]
    if value == results[-1]:
        unsigned = _chain_steps(numbers[:-1], signs[:-1])
    text = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in zip(signs, numbers[1:], strict=True))
    shorter = text[: text.rindex(signs[-1])]
    misled = equations(unsigned), str(unsigned[-1][3])
    return Solution(text, str(results[-1]), equations(steps), misled, f"{shorter}={results[-2]}")


def _chain_steps(numbers: list[int], signs: list[str]) -> list[Step]:
    values = [numbers[0], *partial_results(numbers, signs)]
    return [step(sign, value, number) for sign, value, number in zip(signs, values, numbers[1:], strict=False)]


def remainder(dividend: int, divisor: int) -> Solution:
    """By tens of the divisor, then by units. Misled: the quotient is given."""
    quotient, rest = divmod(dividend, divisor)
    tens = quotient // 10 * 10
    steps = list[Step]()
    value = dividend
    for part in (tens, quotient - tens):
        if part:
            steps += [step("×", divisor, part), step("-", value, divisor * part)]
            value -= divisor * part
    whole = (f"{divisor}×{quotient}={divisor * quotient}",)
    wrong = quotient if quotient != rest else quotient + 1
    breath, wrong_call = f"{dividend}-{divisor}×{quotient}", f"{dividend}-{divisor}={dividend - divisor}"
    return Solution(breath, str(rest), equations(steps), (whole, str(wrong)), wrong_call)


def fraction(sign: str, top: int, bottom: int, other_top: int, other_bottom: int) -> Solution:
    """Over a common denominator, then in lowest terms. Misled: tops and bottoms are each taken together."""
    left, right = f"{top}/{bottom}", f"{other_top}/{other_bottom}"
    if sign == "×":
        new_top, common = top * other_top, bottom * other_bottom
        steps = [*equations([step("×", top, other_top), step("×", bottom, other_bottom)])]
        wrong_steps, wrong = [step("+", top, other_top)], Fraction(top + other_top, common)
    else:
        common = lcm(bottom, other_bottom)
        tops = top * common // bottom, other_top * common // other_bottom
        new_top = step(sign, *tops)[3]
        steps = [f"{left}={tops[0]}/{common}", f"{right}={tops[1]}/{common}", *equations([step(sign, *tops)])]
        wrong_steps = [step("+", top, other_top), step("+", bottom, other_bottom)]
        wrong = Fraction(top + other_top, bottom + other_bottom)
    value = Fraction(new_top, common)
    in_full = f"{new_top}/{common}"
    steps.append(in_full if in_full == str(value) else f"{in_full}={value}")
    if wrong == value:
        wrong += 1
    misled = equations(wrong_steps), str(wrong)
    wrong_call = f"{top}+{other_top}={top + other_top}"
    return Solution(f"{left}{sign}{right}", str(value), tuple(steps), misled, wrong_call)


def product(left: int, right: int) -> Solution:
    """By tens and units of the right factor. Misled: the zero of the tens is forgotten."""
    steps = decompose(left, right)
    forgetful = [step("×", left, right // 10), steps[1]]
    forgetful.append(step("+", forgetful[0][3], forgetful[1][3]))
    misled = equations(forgetful), str(forgetful[-1][3])
    return Solution(f"{left}×{right}", str(left * right), equations(steps), misled, f"{left}+{right}={left + right}")


def think(working: str, answer: object) -> str:
    """A completion with its tags."""
    return f"<think>{working}</think>\\boxed{{{answer}}}"


def call(equation: str) -> str:
    """A calculator call with its result."""
    return f"<<{equation}>>"


def say(steps: Sequence[str]) -> str:
    """Equations as sentences."""
    return " ".join(f"{equation}." for equation in steps)


def slipped_answer(draw: Draw, answer: str) -> str:
    """The answer with a carry lost or added, or one digit of its first number copied wrongly; never the same value."""
    match = re.search(r"\d+", answer)
    assert match is not None
    number = int(match[0])
    if "/" not in answer and number >= 20 and draw.uniform() < 0.6:
        wrong = number + draw.choice((-10, 10))
    else:
        wrong = slip(draw, number)
    return f"{answer[: match.start()]}{wrong}{answer[match.end() :]}"


def written_way(draw: Draw, way: str, solution: Solution, mix: DietConfig) -> str:
    """The completion of a calculation in a way."""
    first, steps, answer = solution.breath, solution.steps, solution.answer
    match way:
        case "at_once":
            result = _maybe_slip(draw, answer, mix.first_slip)
            return think(f"{first}={result}.", result)
        case "working":
            return think(say(steps), answer)
        case "slipped":
            return think(*_slipped(draw, solution))
        case "misled":
            return think(say(solution.misled[0]), solution.misled[1])
        case "checked":
            result, text, last = _maybe_slip(draw, answer, mix.first_slip), say(steps), answer
            if draw.uniform() < SECOND_SLIP:
                text, last = _slipped(draw, solution)
            verdict = w.YES["en"] if result == last else w.NO["en"]
            return think(f"{first}={result}. {w.CHECK['en']} {text} {verdict}", last)
        case "right_call":
            return think(call(f"{first}={answer}"), answer)
        case "needless_call":
            return think(f"{say(steps)} {call(f'{first}={answer}')}", answer)
        case "wrong_call":
            result = solution.wrong_call.rpartition("=")[2]
            return think(call(solution.wrong_call), result)
        case "unfinished":
            if draw.uniform() < 0.5:
                return "<think>" + w.unfinished(draw, say((f"{first}={answer}", *steps)))
            return "<think>" + " ".join([f"{draw.choice(steps or (first,))}."] * draw.integer(4, 8))
    raise AssertionError(f"no way to write a calculation as {way}")


def _maybe_slip(draw: Draw, answer: str, probability: float) -> str:
    return slipped_answer(draw, answer) if draw.uniform() < probability else answer


def _slipped(draw: Draw, solution: Solution) -> tuple[str, str]:
    *beginning, last = solution.steps or (f"{solution.breath}={solution.answer}",)
    left, equals, _ = last.rpartition("=")
    result = slipped_answer(draw, solution.answer)
    return say([*beginning, f"{left}{equals}{result}"]), result


def practice(draw: Draw, mix: object) -> tuple[Problem, str, str]:
    """One step, always right."""
    name = draw.choice(("signed", "running", "rest", "other_terms"))
    expression, result = "", ""
    while not expression:
        match name:
            case "signed":  # a step of a signed chain
                left, right, sign = draw.integer(-200, 120), draw.integer(2, 99), draw.choice("+-")
                if left and _is_free(sign, left, right):
                    expression, result = f"{left} {sign} {right}", str(calculate(sign, left, right))
            case "running":  # a step of a total
                left, right = draw.integer(11, 420), draw.integer(11, 99)
                if _is_free("+", left, right):
                    expression, result = f"{left} + {right}", str(left + right)
            case "rest":  # the rest that a multiple of a divisor leaves
                divisor, dividend = draw.integer(3, 9), draw.integer(10, 999)
                tens = dividend // divisor // 10 * 10 or dividend // divisor
                if tens and _is_free("-", dividend, divisor * tens):
                    expression, result = f"{dividend} - {divisor * tens}", str(dividend - divisor * tens)
            case _:  # a fraction over a multiple of its denominator; read backwards, in lowest terms
                bottom = draw.integer(2, MAX_DENOMINATOR)
                top, factor = draw.integer(1, bottom - 1), draw.integer(2, MAX_DENOMINATOR)
                expression, result = f"{top * factor}/{bottom * factor}", str(Fraction(top, bottom))
    question = f"What is {expression}?"
    equation = f"{expression.replace(' ', '')}={result}"
    return Problem(f"practice/{expression}", question, result), think(f"{equation}.", result), name


def _is_free(sign: str, left: int, right: int) -> bool:
    kind: Kind = "sum" if sign == "+" else "difference"
    return left < 0 or split_of(pair_content(kind, left, right)) == "train"
