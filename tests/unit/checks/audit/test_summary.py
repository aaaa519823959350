"""Counts by hand: rates, intervals, percentiles, agreement, and what decides the exit status."""

import json
from collections.abc import Callable

import pytest

from groupwise.checks.audit.judge import Case, Miss, Result
from groupwise.checks.audit.summary import (
    Summary,
    agreement_line,
    as_json,
    milliseconds,
    others,
    percentiles,
    share,
    tally,
    verdict_line,
)
from groupwise.types import Outcome, Verdict

EVIL = '</pre><script>alert(1)</script><img src="http://evil.example/x">{{ 7 * 7 }}"\x1b[2J\ud800'


@pytest.fixture
def result(case: Callable[..., Case]) -> Callable[..., Result]:
    def make(
        expected: bool | None, miss: Miss | None = None, outcome: Outcome = Outcome.WRONG, group: str = "g",
        seconds: float = 0.001, second: bool | None = None, text: str = "t",
    ) -> Result:  # fmt: skip
        return Result(case(expected, text, group), Verdict(outcome, {}, "why"), seconds, miss, second)

    return make


def test_rates_have_wilson_intervals(result: Callable[..., Result]) -> None:
    results = [result(False, Miss.FALSE_POSITIVE, Outcome.CORRECT), *[result(False)] * 9, *[result(True)] * 4]
    total = tally(results)
    wrong, missed = total["false_positives"], total["false_negatives"]
    assert (total["decided"], total["right"], wrong["of"], missed["of"]) == (14, 13, 10, 4)
    # Wilson, 1 of 10: (0.1 + z²/20 ± z sqrt(0.009 + z²/400)) / (1 + z²/10) with z = 1.96
    assert wrong == pytest.approx({"count": 1, "of": 10, "value": 0.1, "low": 0.01788, "high": 0.40415}, abs=1e-4)
    assert missed["high"] == pytest.approx(0.48990, abs=1e-4)  # z² / (4 + z²)
    assert (missed["value"], missed["low"]) == (0, 0)
    assert share(wrong) == "10.0 % [1.8, 40.4]"


def test_undecided_cases_and_a_verifiers_own_deadline_do_not_decide(result: Callable[..., Result]) -> None:
    results = [result(None, outcome=Outcome.CORRECT), result(False, outcome=Outcome.TIMEOUT), result(True, group="b")]
    summary = Summary(tuple(results), 3)
    assert summary.passed
    assert list(summary.groups) == ["g", "b"]
    assert (summary.groups["g"]["decided"], summary.groups["g"]["stopped_by_deadline"]) == (1, 1)
    assert others(tally(summary.decided)) == "1 stopped by the deadline"
    assert verdict_line(summary) == "Passed: all 2 decided cases have their expected verdict."


@pytest.mark.parametrize("miss", list(Miss))
def test_any_miss_fails(result: Callable[..., Result], miss: Miss) -> None:
    summary = Summary((result(True), result(False, miss)), 2)
    assert not summary.passed
    assert verdict_line(summary).startswith("Not passed: 1 of 2")


def test_an_audit_that_ended_early_fails(result: Callable[..., Result]) -> None:
    summary = Summary((result(True),), 3)
    assert not summary.passed
    assert "2 of 3 cases were not judged" in verdict_line(summary)


def test_the_worst_misses_come_first(result: Callable[..., Result]) -> None:
    order = [Miss.FALSE_NEGATIVE, Miss.CRASH, Miss.FALSE_POSITIVE, Miss.HANG, Miss.FILE_WRITTEN]
    summary = Summary(tuple(result(False, miss) for miss in order), 5)
    assert [one.miss for one in summary.misses] == list(Miss)
    assert others(tally(summary.decided)) == "1 × hang, 1 × crash, 1 × file written"


def test_percentiles_are_nearest_ranks() -> None:
    assert percentiles(range(1, 101)) == {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    assert percentiles([3.0, 1.0]) == {"p50": 1.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert percentiles([]) == {}
    assert milliseconds({"p50": 1234.5, "max": 2.0}) == "p50 1,234.50 ms, max 2.00 ms"


def test_agreement_counts_judged_verdicts_with_a_second_opinion(result: Callable[..., Result]) -> None:
    results = [
        result(True, outcome=Outcome.CORRECT, second=True), result(False, second=True), result(False, second=False),
        result(False), result(False, outcome=Outcome.TIMEOUT, second=False),
    ]  # fmt: skip
    summary = Summary(tuple(results), 5)
    assert summary.agreement == (2, 3)
    assert summary.disagreements == (results[1],)
    assert agreement_line(summary) == "agrees with 2 of 3 verdicts that it can check"
    assert agreement_line(Summary((result(True),), 1)) == ""


def test_json_holds_every_figure(result: Callable[..., Result]) -> None:
    summary = Summary((result(False, Miss.FALSE_POSITIVE, Outcome.CORRECT, text=EVIL), result(None)), 2)
    found = json.loads(json.dumps(as_json(summary, [["one step"]]), allow_nan=False))
    assert found["passed"] is False
    assert found["total"]["false_positives"]["count"] == found["groups"]["g"]["false_positives"]["of"] == 1
    assert found["total"]["false_negatives"]["value"] is None
    assert found["undecided"] == {"cases": 1, "outcomes": {"wrong": 1}}
    assert found["latency_ms"]["p99"] == pytest.approx(1.0)
    assert found["misses"][0]["miss"] == "false positive"
    assert found["misses"][0]["explanation"] == ["one step"]
