"""Countdown: exact, each number once, no trick of notation."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countdown import CountdownVerifier
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request

VERIFIER = CountdownVerifier()
CASES = Path(__file__).parents[4] / "shared/data/game24/game24_cases.jsonl"


def problem(numbers: list[int], target: int) -> Problem:
    return Problem("p", "q", str(target), data={"numbers": numbers, "target": target})


@pytest.mark.parametrize(
    ("expression", "outcome", "evidence"),
    [
        ("(3+5)*2", "correct", "equals 16"), ("(3+5)×2=16", "correct", ""),
        (r"$\left(3+5\right)\times 2$", "correct", ""), ("2*(5+3)", "correct", ""),
        ("(3+5)*2=17", "wrong", "claims to equal 17"), ("3+5*2", "wrong", "equals 13, not 16"),
        ("3+5+5+3", "wrong", "exactly once"), ("(3+5)", "wrong", "exactly once"),
        ("(3+5)*2*1", "wrong", "exactly once"), ("16", "wrong", "exactly once"), ("5/(3-3)", "wrong", "exactly once"),
        ("(3+5)*2=8*2", "unparsable", "after '='"), ("(3+5)2", "unparsable", "no expression"),
        ("-3+5*2", "unparsable", ""), ("2**3+5", "unparsable", ""), ("5//2*3", "unparsable", ""),
        ("3.5*2", "unparsable", ""), ("3_5*2", "unparsable", ""), ("(3+5*2", "unparsable", "no expression"),
        ("3+", "unparsable", "no expression"), ("٣+5*2", "unparsable", ""), ("__import__('os')", "unparsable", ""),
        ("(" * 60 + "3" + ")" * 60, "wrong", "exactly once"), ("(" * 400 + "3", "unparsable", ""),
        ("3+" * 1000, "unparsable", "characters"),
        ("(3+5)∗2", "unparsable", ""), ("（3+5）*2", "unparsable", ""), ("(3+5)*2, (5+3)*2", "unparsable", ""),
        ("(3+5)*2+3-3", "wrong", "exactly once"), ("35-2", "wrong", "exactly once"), ("(3+5)*-2*-1", "unparsable", ""),
    ],
)  # fmt: skip
def test_cases(expression: str, outcome: str, evidence: str) -> None:
    verdict = VERIFIER.verify(problem([2, 3, 5], 16), f"<think></think>\\boxed{{{expression}}}")
    assert verdict.outcome == outcome
    assert evidence in verdict.evidence
    assert verdict.reward == (1.0 if outcome == "correct" else 0.0)


def test_division_is_exact_and_by_zero_is_wrong() -> None:
    assert VERIFIER.verify(problem([3, 3, 8, 8], 24), r"\boxed{8/(3-8/3)}").outcome is Outcome.CORRECT
    verdict = VERIFIER.verify(problem([3, 3, 8], 24), r"\boxed{8/(3-3)}")
    assert verdict.outcome is Outcome.WRONG
    assert "zero" in verdict.evidence


def test_spellings_share_one_canonical_answer() -> None:
    spellings = ("2*3", "2 × 3", "2\\times3=6")
    answers = {VERIFIER.verify(problem([2, 3], 6), f"\\boxed{{{text}}}").answer for text in spellings}
    assert answers == {"2*3"}


def test_a_problem_without_numbers_is_the_verifiers_failure() -> None:
    verdict = VERIFIER.verify(Problem("p", "q", "6"), r"\boxed{2*3}")
    assert verdict.outcome is Outcome.CRASHED
    assert verdict.reward is None


@given(st.text(alphabet="0123456789+-*/()= .×{}\\", max_size=60))
def test_no_text_raises(text: str) -> None:
    assert VERIFIER.verify(problem([1, 2], 3), f"\\boxed{{{text}}}").outcome.judged


@pytest.mark.skipif(not CASES.exists(), reason="game24 cases are not here")
def test_agrees_with_all_labels_of_the_game_of_24_log_but_on_a_false_claim() -> None:
    """A line of the log is `Answer: expression = claim`; what its authors judge is the expression, not the claim."""
    rows = [json.loads(line) for line in CASES.read_text().splitlines()]
    assert (len(rows), sum(row["expected"] for row in rows)) == (5090, 90)
    whole = [row["answer_line"].removeprefix("Answer: ") for row in rows]
    differing = []
    for answers in ([answer.partition("=")[0] for answer in whole], whole):
        pairs = [(problem(row["numbers"], row["target"]), answer) for row, answer in zip(rows, answers, strict=True)]
        verdicts = VERIFIER.verify_many([Request(asked, f"\\boxed{{{answer}}}") for asked, answer in pairs])
        judged = zip(rows, verdicts, strict=True)
        differing.append([v.evidence for row, v in judged if (v.outcome is Outcome.CORRECT) != row["expected"]])
    assert differing == [[], ["it claims to equal 48, not 24"]]
