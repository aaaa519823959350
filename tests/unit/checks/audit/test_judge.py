"""What counts as a miss, and when an audit ends."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.checks.audit.judge import Canary, Case, Limits, Miss, judge_cases
from groupwise.types import Outcome

PATIENT = Limits(verdict_s=60)


@pytest.mark.parametrize(
    ("expected", "outcome", "miss"),
    [
        (True, Outcome.CORRECT, None), (True, Outcome.WRONG, Miss.FALSE_NEGATIVE),
        (True, Outcome.UNPARSABLE, Miss.FALSE_NEGATIVE), (True, Outcome.TIMEOUT, Miss.FALSE_NEGATIVE),
        (True, Outcome.CRASHED, Miss.CRASH), (False, Outcome.CORRECT, Miss.FALSE_POSITIVE),
        (False, Outcome.WRONG, None), (False, Outcome.UNPARSABLE, None), (False, Outcome.TIMEOUT, None),
        (False, Outcome.CRASHED, Miss.CRASH), *((None, outcome, None) for outcome in Outcome),
    ],
)  # fmt: skip
def test_misses(told: Any, case: Callable[..., Case], expected: bool | None, outcome: Outcome, miss: Miss) -> None:
    (result,) = judge_cases(told(lambda text: outcome), [case(expected)], PATIENT)
    assert (result.miss, result.verdict.outcome) == (miss, outcome)


def test_an_exception_is_a_crash(told: Any, case: Callable[..., Case]) -> None:
    def fail(text: str) -> Outcome:
        raise IndexError("no box")

    (result,) = judge_cases(told(fail), [case(False)], PATIENT)
    assert (result.miss, result.verdict.evidence) == (Miss.CRASH, "it raised IndexError: no box")


def test_a_slow_verdict_is_a_hang_and_many_end_the_audit(told: Any, case: Callable[..., Case]) -> None:
    def slow(text: str) -> Outcome:
        time.sleep(0.2 if text == "slow" else 0)
        return Outcome.WRONG

    cases = [case(False), case(False, "slow"), case(None, "slow"), case(False, "slow"), case(False)]
    results = list(judge_cases(told(slow), cases, Limits(verdict_s=0.2, hangs=2)))
    assert [result.miss for result in results] == [None, Miss.HANG, None, Miss.HANG]
    assert 0.2 <= results[1].seconds < 10


def test_starting_a_verifier_is_no_part_of_a_verdict(told: Any, case: Callable[..., Case]) -> None:
    class Slow(told):  # type: ignore[misc]
        def start(self) -> None:
            time.sleep(0.5)

    (result,) = judge_cases(Slow(lambda text: Outcome.WRONG), [case(False)], Limits(verdict_s=0.5))
    assert result.miss is None
    assert result.seconds < 0.5


def test_a_timeout_is_a_hang_where_the_audit_had_to_kill(told: Any, case: Callable[..., Case]) -> None:
    limits = Limits(verdict_s=60, timeout_is_hang=True)
    (result,) = judge_cases(told(lambda text: Outcome.TIMEOUT), [case(False)], limits)
    assert result.miss is Miss.HANG


@pytest.mark.parametrize("which", [0, 1])
def test_a_written_file_is_seen_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any, case: Callable[..., Case], which: int
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    canary = Canary(tmp_path)

    def execute(text: str) -> Outcome:
        if text == "evil":
            canary.paths[which].write_text("x")
        return Outcome.WRONG

    results = list(judge_cases(told(execute), [case(False, "evil"), case(False), case(None, "evil")], PATIENT, canary))
    assert [result.miss for result in results] == [Miss.FILE_WRITTEN, None, Miss.FILE_WRITTEN]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_second_opinions_are_kept(told: Any, case: Callable[..., Case]) -> None:
    results = judge_cases(
        told(lambda text: Outcome.WRONG), [case(False, "a"), case(False, "b")], PATIENT, None,
        lambda one: one.text == "a",
    )  # fmt: skip
    assert [result.second for result in results] == [True, False]
