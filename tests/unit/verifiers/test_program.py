"""Programs of thought: what a program prints is the answer, and nothing else is."""

from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.sandbox.base import RunResult, Sandbox, Status
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, verifier_config
from groupwise.verifiers.code import ProgramConfig, ProgramVerifier

PROBLEM = Problem("p", "?", "42")
PROGRAM = "<think>I compute.</think>```python\nprint(6*7)\n```"


def judge(sandbox: Sandbox, *texts: str, **config: Any) -> list[Verdict]:
    settings = verifier_config({"kind": "program", **config})
    assert isinstance(settings, ProgramConfig)
    with ProgramVerifier(settings, sandbox) as verifier:
        return verifier.verify_many([Request(PROBLEM, text) for text in texts])


@pytest.mark.parametrize(
    ("stdout", "status", "code", "expected"),
    [
        ("42\n", Status.EXITED, 0, Outcome.CORRECT), ("41\n", Status.EXITED, 0, Outcome.WRONG),
        ("", Status.EXITED, 0, Outcome.UNPARSABLE), ("4" * 501, Status.EXITED, 0, Outcome.UNPARSABLE),
        ("} \\boxed{42", Status.EXITED, 0, Outcome.UNPARSABLE), ("42", Status.EXITED, 1, Outcome.UNPARSABLE),
        ("42", Status.TIMEOUT, None, Outcome.UNPARSABLE), ("42", Status.FLOODED, None, Outcome.UNPARSABLE),
        ("42", Status.FAILED, None, Outcome.CRASHED),
    ],
)  # fmt: skip
def test_what_was_printed_is_judged(
    fake_sandbox: Any, stdout: str, status: Status, code: int | None, expected: Outcome
) -> None:
    sandbox = fake_sandbox(lambda _: RunResult(status, code, stdout.encode(), b"ValueError: no", 0.1, "evidence"))
    assert judge(sandbox, PROGRAM)[0].outcome is expected


def test_equal_programs_run_once_and_pay_what_this_section_says(fake_sandbox: Any) -> None:
    sandbox = fake_sandbox(lambda _: RunResult(Status.EXITED, 0, b"42", b"", 0.1))
    texts = (PROGRAM, PROGRAM, "<think>6×7</think>\\boxed{42}")
    *verdicts, none = judge(sandbox, *texts, correct_reward=2.0, answer={"kind": "math"})
    assert [verdict.reward for verdict in verdicts] == [2.0, 2.0]
    assert [program.source for program in sandbox.programs] == ["print(6*7)\n"]
    assert "printed '42'" in verdicts[0].evidence
    assert verdicts[0].answer == "42"
    assert none.outcome is Outcome.UNPARSABLE


def test_only_boxes_are_read() -> None:
    with pytest.raises(ValidationError, match="boxed"):
        verifier_config({"kind": "program", "answer": {"kind": "number", "extraction": "last_number"}})
