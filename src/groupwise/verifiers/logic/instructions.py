"""Instructions on the form of a text: counts, letter case, first and last word, keywords; correct only if all hold.

Needs `problem.data["constraints"]`, a list of mappings: `{"kind": "count", "unit": ..., "least": n, "most": n}`,
`{"kind": "keyword", "word": ..., "least": n, "most": n}`, `{"kind": "case", "case": "lower" | "upper"}`,
`{"kind": "first_word" | "last_word", "word": ...}`. A missing bound does not apply.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic import Field

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import ExtractingConfig, Request
from groupwise.verifiers.logic.base import ExactVerifier, Measured, UnreadableError

Constraint = Mapping[str, Any]

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_SENTENCE_END = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)")
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")


def words(text: str) -> list[str]:
    """Runs of letters and digits; an apostrophe or hyphen within a word does not split it."""
    return _WORD.findall(text)


COUNTS: Mapping[str, Callable[[str], int]] = MappingProxyType({
    "words": lambda text: len(words(text)),
    "sentences": lambda text: len(_SENTENCE_END.findall(text)),
    "lines": lambda text: sum(bool(line.strip()) for line in text.split("\n")),
    "paragraphs": lambda text: len(_BLANK_LINES.split(text)),
    "bullets": lambda text: sum(line.startswith("- ") for line in text.split("\n")),
    "commas": lambda text: text.count(","),
})  # fmt: skip
"""What can be counted in a text without outer white space; blank lines are not lines; they separate paragraphs."""


def _within(constraint: Constraint, number: int) -> bool:
    return bool(constraint.get("least", number) <= number <= constraint.get("most", number))


CHECKS: Mapping[str, Callable[[Constraint, str], bool]] = MappingProxyType({
    "count": lambda constraint, text: _within(constraint, COUNTS[constraint["unit"]](text)),
    "keyword": lambda constraint, text: _within(
        constraint, [word.casefold() for word in words(text)].count(constraint["word"].casefold())
    ),
    "case": lambda constraint, text: {"lower": text.islower, "upper": text.isupper}[constraint["case"]](),
    "first_word": lambda constraint, text: words(text)[:1] == [constraint["word"]],
    "last_word": lambda constraint, text: words(text)[-1:] == [constraint["word"]],
})  # fmt: skip
"""Whether a text meets a constraint, by kind."""


class InstructionsConfig(ExtractingConfig):
    """Settings of the verifier of instructions."""

    partial_credit: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Reward part `partial`: this times the share of constraints met. 0: no such part."""


class InstructionsVerifier(ExactVerifier):
    """The measure `constraints` is the share (0 to 1) of the constraints met; only all of them are correct.

    `partial_credit` pays for that share.
    """

    Config = InstructionsConfig
    one_right = False
    config: InstructionsConfig

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request, in the same order."""
        verdicts, weight = super().verify_many(requests), self.config.partial_credit
        if not weight:
            return verdicts
        return [
            replace(verdict, parts={**verdict.parts, "partial": weight * verdict.measures.get("constraints", 0.0)})
            if verdict.outcome.judged
            else verdict
            for verdict in verdicts
        ]

    def find(self, problem: Problem, answer: str) -> Measured:
        constraints = list(problem.data["constraints"])
        if character := next((c for c in answer if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\t"), ""):
            raise UnreadableError(f"the text has the invisible character U+{ord(character):04X}")
        if not words(answer):
            raise UnreadableError("the text has no word")
        violations = [constraint for constraint in constraints if not CHECKS[constraint["kind"]](constraint, answer)]
        outcome = Outcome.WRONG if violations else Outcome.CORRECT
        evidence = f"not met: {dict(violations[0])}" if violations else f"all {len(constraints)} constraints are met"
        return Measured(outcome, evidence, answer, {"constraints": 1 - len(violations) / len(constraints)})
