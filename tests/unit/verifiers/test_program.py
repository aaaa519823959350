"""Programs of thought: what a program prints is the answer, and nothing else is."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.sandbox.base import RunResult, Sandbox, Status
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request, verifier_config
from groupwise.verifiers.program import ProgramConfig, ProgramVerifier

PROBLEM = Problem("p", "?", "42")
PROGRAM = "<think>I compute.</think>```python\nprint(6*7)\n```"


class Prints(Sandbox):
    """Every program ends like this."""

    def __init__(
        self, stdout: str = "", status: Status = Status.EXITED, code: int | None = 0, stderr: str = ""
    ) -> None:
        self.result = RunResult(status, code, stdout.encode(), stderr.encode(), 0.1, "evidence")
        self.sources: list[str] = []

    def run_many(self, programs: Sequence[Any]) -> list[RunResult]:
        self.sources += [program.source for program in programs]
        return [self.result] * len(programs)

    def run_pairs(self, pairs: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def outcome(sandbox: Sandbox, text: str = PROGRAM, **config: Any) -> Outcome:
    settings = verifier_config({"kind": "program", **config})
    assert isinstance(settings, ProgramConfig)
    with ProgramVerifier(settings, sandbox) as verifier:
        return verifier.verify(PROBLEM, text).outcome


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [
        (Prints("42\n"), Outcome.CORRECT), (Prints("41\n"), Outcome.WRONG), (Prints(""), Outcome.UNPARSABLE),
        (Prints("4" * 501), Outcome.UNPARSABLE), (Prints("} \\boxed{42"), Outcome.UNPARSABLE),
        (Prints("42", code=1, stderr="ValueError: no"), Outcome.UNPARSABLE),
        (Prints("42", Status.TIMEOUT, None), Outcome.UNPARSABLE),
        (Prints("42", Status.FLOODED, None), Outcome.UNPARSABLE), (Prints("42", Status.FAILED, None), Outcome.CRASHED),
    ],
)  # fmt: skip
def test_what_was_printed_is_judged(sandbox: Sandbox, expected: Outcome) -> None:
    assert outcome(sandbox) is expected


def test_without_a_program_there_is_no_answer() -> None:
    sandbox = Prints("42")
    assert outcome(sandbox, "<think>6×7</think>\\boxed{42}") is Outcome.UNPARSABLE
    assert sandbox.sources == []


def test_equal_programs_run_once_and_pay_what_this_section_says() -> None:
    sandbox = Prints("42")
    settings = verifier_config({"kind": "program", "correct_reward": 2.0, "answer": {"kind": "math"}})
    assert isinstance(settings, ProgramConfig)
    with ProgramVerifier(settings, sandbox) as verifier:
        verdicts = verifier.verify_many([Request(PROBLEM, PROGRAM), Request(PROBLEM, PROGRAM)])
    assert [verdict.reward for verdict in verdicts] == [2.0, 2.0]
    assert sandbox.sources == ["print(6*7)\n"]
    assert "printed '42'" in verdicts[0].evidence
    assert verdicts[0].answer == "42"


def test_only_boxes_are_read() -> None:
    with pytest.raises(ValidationError, match="boxed"):
        verifier_config({"kind": "program", "answer": {"kind": "number", "extraction": "last_number"}})
