"""A verdict told step by step, for a person who doubts it."""

from collections.abc import Sequence

from groupwise.types import Problem, Verdict
from groupwise.verifiers.base import VerifierConfig
from groupwise.verifiers.extraction import after_thinking, extract
from groupwise.verifiers.logic import LOGIC_VERIFIERS
from groupwise.verifiers.math import MathVerifier

READS_ONE_ANSWER = ("countdown", *LOGIC_VERIFIERS)
"""Verifiers beside the mathematical one that read the answer as `extraction` says."""


def explain(verifier: str, told: Sequence[tuple[Problem, str, Verdict]], config: VerifierConfig) -> list[list[str]]:
    """What was read in each completion, and how its verdict came about, one step each."""
    if verifier == "math":
        with MathVerifier(config) as mathematics:
            return [mathematics.explain(problem, text) for problem, text, _ in told]
    if verifier in READS_ONE_ANSWER:
        return [[*_reading(text, config), verdict.evidence] for _, text, verdict in told]
    return [[verdict.evidence] for _, _, verdict in told]


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
