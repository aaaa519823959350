"""Process supervision by arithmetic: every equation that a completion writes is a step, checked exactly.

The last step is the answer, with the verdict's own reward. The text between equations belongs to the next one.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from groupwise.types import Problem, StepReward, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier, VerifierConfig
from groupwise.verifiers.steps import NUMBER, boundaries

_TOKEN = re.compile(rf"{NUMBER}|[-+*/()]")
_SPELLINGS = str.maketrans({"−": "-", "×": "*", "·": "*", "÷": "/"})


class StepVerifier(Verifier):
    """Wraps a verifier and adds `Verdict.steps`: 1 for a true equation, 0 for a false one."""

    def __init__(self, main: Verifier, config: VerifierConfig) -> None:
        super().__init__(config)
        self._main = main

    @property
    def accepts_references(self) -> bool:  # type: ignore[override]
        """Whether the wrapped verifier does."""
        return self._main.accepts_references

    @property
    def name(self) -> str:
        """The wrapped verifier's."""
        return self._main.name

    @property
    def repeatable(self) -> bool:
        """Whether the wrapped verifier is repeatable."""
        return self._main.repeatable

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order."""
        verdicts = self._main.verify_many(requests)
        return [_add_steps(verdict, request.text) for verdict, request in zip(verdicts, requests, strict=True)]

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        """Check with the wrapped verifier."""
        self._main.check(problems, template)

    def explain(self, problem: Problem, text: str, verdict: Verdict) -> list[str]:
        """What the wrapped verifier says."""
        return self._main.explain(problem, text, verdict)

    def start(self) -> None:
        """Start the wrapped verifier."""
        self._main.start()

    def close(self) -> None:
        """Close the wrapped verifier."""
        self._main.close()


def _add_steps(verdict: Verdict, text: str) -> Verdict:
    if not verdict.outcome.judged or verdict.reward is None:
        return verdict
    steps = equation_steps(text)
    return replace(verdict, steps=(*steps, StepReward(len(text), verdict.reward)))


def equation_steps(text: str) -> list[StepReward]:
    """The equations of a text, each with its end in characters and whether all its sides are equal.

    >>> equation_steps("45×7=315. 300+15=314")
    [StepReward(end=8, reward=1.0), StepReward(end=20, reward=0.0)]
    """
    return [StepReward(match.end(), float(is_true(match[0]))) for match in boundaries(text, "equation")]


def is_true(equation: str) -> bool:
    """Whether all sides have the same value.

    >>> is_true("45×7=300+15"), is_true("1=2"), is_true("1÷0=1÷0")
    (True, False, False)
    """
    values = {value(side) for side in equation.split("=")}
    return len(values) == 1 and None not in values


def value(expression: str) -> Fraction | None:
    """Exact value of a side with + - × ÷ and parentheses; None if it has none (x / 0, an open parenthesis).

    >>> value("(3 + 4) × 2")
    Fraction(14, 1)
    """
    tokens = _TOKEN.findall(expression.translate(_SPELLINGS))
    total, rest = _sum(tokens)
    return total if not rest else None


def _sum(tokens: list[str]) -> tuple[Fraction | None, list[str]]:
    total, rest = _product(tokens)
    while rest and rest[0] in "+-" and total is not None:
        sign, (term, rest) = rest[0], _product(rest[1:])
        total = None if term is None else total + term if sign == "+" else total - term
    return total, rest


def _product(tokens: list[str]) -> tuple[Fraction | None, list[str]]:
    total, rest = _atom(tokens)
    while rest and rest[0] in "*/" and total is not None:
        sign, (factor, rest) = rest[0], _atom(rest[1:])
        if factor is None or (sign == "/" and factor == 0):
            return None, rest
        total = total * factor if sign == "*" else total / factor
    return total, rest


def _atom(tokens: list[str]) -> tuple[Fraction | None, list[str]]:
    if not tokens:
        return None, []
    if tokens[0] == "(":
        total, rest = _sum(tokens[1:])
        return (total, rest[1:]) if rest[:1] == [")"] else (None, rest)
    return (Fraction(tokens[0]), tokens[1:]) if tokens[0][0].isdigit() else (None, tokens)
