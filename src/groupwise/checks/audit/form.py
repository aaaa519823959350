"""The form of a right answer, taken from a task's template, and what else attacks need to know of a problem."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from groupwise.tasks.base import Template
from groupwise.types import Problem

Differs = Callable[[str, str], bool]
"""Whether the second text is certainly no right answer where the first is the reference answer."""


@dataclass(frozen=True, slots=True)
class Form:
    """One problem, and how answers to it are written."""

    problem: Problem
    template: Template
    differs: Differs

    def answer(self, content: str) -> str:
        """The ideal completion, with another answer."""
        return self.template.gold_answer(replace(self.problem, reference=content))

    def final(self, content: str) -> str:
        """The part of it that comes after the reasoning."""
        return self.answer(content).rpartition("</think>")[2]

    def thought(self, thinking: str, content: str) -> str:
        """The same after other reasoning."""
        return f"<think>{thinking}</think>{self.final(content)}"

    @property
    def thinks(self) -> bool:
        """Whether the form has reasoning tags at all."""
        return "</think>" in self.answer(self.problem.reference)

    @property
    def is_short(self) -> bool:
        """True for an answer of one line, not a program or a proof, in which a changed word is a changed answer."""
        return "\n" not in self.problem.reference and len(self.problem.reference) <= 200

    @property
    def integer(self) -> int | None:
        """The reference answer where it is a plain integer."""
        plain = re.fullmatch(r"-?[0-9]{1,30}", self.problem.reference)
        return int(plain[0]) if plain else None

    @property
    def wrong(self) -> str:
        """A wrong answer that looks like a right one."""
        near = self.integer
        return str(near + 1) if near is not None else "7919"


def differs_as_number(reference: str, answer: str) -> bool:
    """Plain comparison for any verifier: False where both are the same number, or the same text."""
    try:
        return Fraction(reference) != Fraction(answer)
    except (ValueError, ZeroDivisionError):
        return reference.strip() != answer.strip()
