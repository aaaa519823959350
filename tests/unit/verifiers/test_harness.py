"""Answers read by the rules of lm-eval, verl and Qwen's harness; expectations worked by hand from their sources."""

import pytest

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Request
from groupwise.verifiers.harness import HarnessConfig, HarnessVerifier, read_answer

RECITED = "#### 5\n\nQuestion: what?\nAnswer: it is 1,018.\n#### 1,018."


@pytest.mark.parametrize(
    ("rule", "text", "answer"),
    [
        ("lm_eval_strict", RECITED, "5"), ("lm_eval_strict", "the answer is 5", ""), ("lm_eval_strict", "####5", ""),
        ("lm_eval_flexible", RECITED, "1,018."), ("lm_eval_flexible", "costs $7 and $12.50 .", "$12.50"),
        ("lm_eval_flexible", "x = -3", "-3"), ("lm_eval_flexible", "none", ""),
        ("verl_strict", RECITED, "1,018."), ("verl_strict", "#### 7" + "." * 300, ""),
        ("verl_flexible", "it is 7 . . .", "7"), ("verl_flexible", "one", ""),
        ("qwen", r"\boxed{1} or \boxed{\frac{1}{2}}.", r"\frac{1}{2}"), ("qwen", "The answer is: 18.", "18"),
        ("qwen", r"The final answer is $3$. I hope it is correct. \boxed{4}", "3"),
        ("qwen", "so 1,200 of 12", "12"), ("qwen", r"\boxed{unclosed 4", "unclosed 4"), ("qwen", "nothing", ""),
        ("minerva", "Final Answer: The final answer is $[2,5)$. I hope it is correct.", "$[2,5)$"),
        ("minerva", "The final answer is $3$.", ""),
    ],
)  # fmt: skip
def test_the_answer_that_a_rule_reads(rule: str, text: str, answer: str) -> None:
    assert read_answer(rule, text) == answer


@pytest.mark.parametrize(
    ("rule", "text", "outcome"),
    [
        ("lm_eval_strict", "#### 1,018.", Outcome.CORRECT), ("verl_strict", "#### 1,018", Outcome.CORRECT),
        ("verl_strict", "#### 1018.", Outcome.WRONG), ("lm_eval_strict", "#### 1018.0", Outcome.WRONG),
        ("lm_eval_flexible", "$1,018", Outcome.CORRECT), ("lm_eval_strict", "1018", Outcome.UNPARSABLE),
        ("qwen", "The answer is 1018.0", Outcome.CORRECT), ("qwen", "none", Outcome.UNPARSABLE),
        ("minerva", "Final Answer: The final answer is $1018$. I hope", Outcome.UNPARSABLE),
    ],
)  # fmt: skip
def test_the_verdict_of_a_rule(rule: str, text: str, outcome: Outcome) -> None:
    with HarnessVerifier(HarnessConfig(kind="harness", rule=rule)) as verifier:  # type: ignore[arg-type]
        (verdict,) = verifier.verify_many([Request(Problem("p", "?", "1018"), text)])
    assert verdict.outcome is outcome, verdict.evidence
