"""A verdict told step by step, for a person who doubts it."""

from groupwise.types import Problem, Verdict
from groupwise.verifiers.base import VerifierConfig
from groupwise.verifiers.extraction import after_thinking, extract
from groupwise.verifiers.logic import LOGIC_VERIFIERS
from groupwise.verifiers.math import explain as explain_math

READS_ONE_ANSWER = ("countdown", *LOGIC_VERIFIERS)
"""Verifiers beside the mathematical one that read the answer as `extraction` says."""


def explain(verifier: str, problem: Problem, text: str, verdict: Verdict, config: VerifierConfig) -> list[str]:
    """What was read, and how the verdict came about, one step each."""
    if verifier == "math":
        return explain_math(problem.reference, text, config)
    if verifier in READS_ONE_ANSWER:
        return [*_reading(text, config), verdict.evidence]
    return [verdict.evidence]


def _reading(text: str, config: VerifierConfig) -> list[str]:
    region, extracted = after_thinking(text), extract(text, config.extraction)
    if region is None:
        return []  # the verdict's evidence says so
    steps = [f"after the reasoning stands {clipped(region)}"]
    if extracted.answer is not None:
        steps.append(f"the answer ({config.extraction}) is {clipped(extracted.answer)}")
    return steps


def clipped(text: str, most: int = 160) -> str:
    """Text of a model on one line, its control characters spelled out, cut in the middle where it is long."""
    if len(text) > most:
        return (
            f"{clipped(text[: most * 2 // 3], most)} … {clipped(text[-most // 3 :], most)} ({len(text):,} characters)"
        )
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) or "(empty)"
