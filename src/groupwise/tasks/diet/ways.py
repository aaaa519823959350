"""The ways in which a calculation is written: in one breath, step by step, with slips, checks and calculator calls.

A call is `<<expression=result>>`, one character per token. A tool that answers such calls would write what stands
between `=` and `>>`; here it is text like any other.
"""

import re
from collections.abc import Sequence

from groupwise.randomness import Draw
from groupwise.tasks import corpus_working as w
from groupwise.tasks.diet.config import DietConfig
from groupwise.tasks.diet.solutions import Solution


def think(working: str, answer: object) -> str:
    """A completion with its tags."""
    return f"<think>{working}</think>\\boxed{{{answer}}}"


def call(equation: str) -> str:
    """A calculator call with its result."""
    return f"<<{equation}>>"


def say(steps: Sequence[str]) -> str:
    """Equations as sentences."""
    return " ".join(f"{equation}." for equation in steps)


def slip(draw: Draw, answer: str) -> str:
    """The answer with a carry lost or added, or one digit of its first number copied wrongly; never the same value."""
    match = re.search(r"\d+", answer)
    assert match is not None
    number = int(match[0])
    if "/" not in answer and number >= 20 and draw.uniform() < 0.6:
        wrong = number + draw.choice((-10, 10))
    else:
        wrong = w.slip(draw, number)
    return f"{answer[: match.start()]}{wrong}{answer[match.end() :]}"


def written(draw: Draw, way: str, solution: Solution, mix: DietConfig) -> str:
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
            return _checked(draw, solution, mix)
        case "right_call":
            return think(call(f"{first}={answer}"), answer)
        case "needless_call":
            return think(f"{say(steps)} {call(f'{first}={answer}')}", answer)
        case "wrong_call":
            result = solution.wrong_call.rpartition("=")[2]
            return think(call(solution.wrong_call), result)
        case "unfinished":
            return "<think>" + _unfinished(draw, solution)
    raise AssertionError(f"no way to write a calculation as {way}")


def _maybe_slip(draw: Draw, answer: str, probability: float) -> str:
    return slip(draw, answer) if draw.uniform() < probability else answer


def _slipped(draw: Draw, solution: Solution) -> tuple[str, str]:
    """A working whose last result is wrong, and the answer that it leads to."""
    *beginning, last = solution.steps or (f"{solution.breath}={solution.answer}",)
    left, equals, _ = last.rpartition("=")
    result = slip(draw, solution.answer)
    return say([*beginning, f"{left}{equals}{result}"]), result


def _checked(draw: Draw, solution: Solution, mix: DietConfig) -> str:
    """One breath, a second look step by step, and whether the two agree."""
    first = _maybe_slip(draw, solution.answer, mix.first_slip)
    second = (say(solution.steps), solution.answer)
    if draw.uniform() < mix.second_slip:
        second = _slipped(draw, solution)
    text, answer = second
    found = w.YES["en"] if first == answer else w.NO["en"]
    return think(f"{solution.breath}={first}. {w.CHECK['en']} {text} {found}", answer)


def _unfinished(draw: Draw, solution: Solution) -> str:
    text = say((f"{solution.breath}={solution.answer}", *solution.steps))
    if draw.uniform() < 0.5:
        return w.unfinished(draw, text)
    return " ".join([f"{draw.choice(solution.steps or (solution.breath,))}."] * draw.integer(4, 8))
