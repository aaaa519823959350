"""Rewards that are wrong on purpose, for claims about what a policy makes of a wrong reward."""

import hashlib
import re

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


def coin(completion: str, reference: str) -> float:
    """Pays every other completion, whatever it says; the same text always gets the same."""
    return float(hashlib.sha256(f"{reference}:{completion}".encode()).digest()[0] % 2)


def contained(completion: str, reference: str) -> float:
    """Pays an answer that stands anywhere in the reference answer: a digit of it does, and so does no answer at all.

    A mistake that real verifiers made: `answer in reference` where `answer == reference` was meant.
    """
    answers = BOXED.findall(completion)
    answer = answers[-1].strip() if answers else ""
    return float(answer in reference)
