"""Process supervision by arithmetic: every equation that a completion writes is a step, checked exactly.

The last step is the answer, with the verdict's own reward. The text between equations belongs to the next one.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from groupwise.types import Problem, StepReward, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier, VerifierConfig

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"
_TERM = rf"\(?\s*{_NUMBER}\s*\)?"
_SIDE = rf"{_TERM}(?:\s*[-+−×*·/÷]\s*{_TERM}){{0,20}}"
EQUATION = re.compile(rf"(?<![0-9.=]){_SIDE}(?:\s*=\s*{_SIDE})+")
MAX_STEPS = 200
_TOKEN = re.compile(rf"{_NUMBER}|[-+*/()]")
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
    return replace(verdict, steps=(*steps, StepReward(len(text), verdict.reward)) if text else ())


def equation_steps(text: str) -> list[StepReward]:
    """The equations of a text, each with its end in characters and whether all its sides are equal.

    >>> equation_steps("45×7=315. 300+15=314")
    [StepReward(end=8, reward=1.0), StepReward(end=20, reward=0.0)]
    """
    steps = []
    for match in EQUATION.finditer(text):
        values = {value(side) for side in match[0].split("=")}
        steps.append(StepReward(match.end(), float(len(values) == 1 and None not in values)))
        if len(steps) == MAX_STEPS:
            break
    return steps


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
