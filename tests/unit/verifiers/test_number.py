"""Where the question is a calculation, restating it is no answer."""

import pytest

from groupwise.types import Problem
from groupwise.verifiers import make_verifier


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("5084", "correct"),
        ("5,084", "correct"),
        ("5084.0", "correct"),
        (r"\text{5084}", "correct"),
        (r"62 \times 82", "wrong"),
        ("62*82", "wrong"),
        (r"82 \cdot 62", "wrong"),
        ("5000+84", "wrong"),
        (r"\sqrt{5084^2}", "wrong"),
        ("2 \\cdot 2542", "wrong"),
        ("5085", "wrong"),
        ("", "unparsable"),
    ],
)
def test_only_a_number_is_an_answer(answer: str, outcome: str) -> None:
    verdict = make_verifier("number").verify(
        Problem("p", "What is 62 × 82?", "5084"), rf"<think>x</think>\boxed{{{answer}}}"
    )
    assert verdict.outcome == outcome, verdict.evidence
