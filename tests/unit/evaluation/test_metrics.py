"""Metrics of evaluations and their comparison, against values worked out by hand."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.errors import DataError
from groupwise.evaluation.behaviour import PATTERNS, Behaviour
from groupwise.evaluation.metrics import (
    BEHAVIOURS,
    MEASURES,
    METRICS,
    before_after,
    by_difficulty,
    by_problem,
    changes,
    common,
    compare,
    estimate,
    figures,
    metric,
    show,
    summary,
    verdict_errors,
)
from groupwise.runs.records import Records
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome, TurnRecord


def test_before_and_after(finished_run: Any) -> None:
    pair = before_after(Records.open(finished_run.path).intact())
    assert pair is not None
    assert (pair.split, pair.num_problems) == ("test", 2)
    found = {key: (c.before.value, c.after.value, c.difference.value) for key, c in changes(pair).items()}
    assert found["pass_at_1"] == (0.0, 0.75, 0.75)
    assert found["at_once"] == (0.75, 0.25, -0.5)
    assert found["works_out"] == (0.0, 0.75, 0.75)
    assert found["checks"] == (0.0, 0.75, 0.75)
    assert found["unfinished"] == found["truncated"] == (0.25, 0.0, -0.25)
    # 31, 31, 31 and 11 characters before; 60, 60, 31 and 60 after
    assert found["length"] == (26.0, 52.75, 26.75)


def test_every_measure_is_a_metric() -> None:
    assert MEASURES.keys() <= METRICS.keys()
    assert all(metric.name and metric.meaning.endswith(".") for metric in METRICS.values())


def test_every_behaviour_is_measured() -> None:
    assert set(BEHAVIOURS.values()) == set(Behaviour)
    assert BEHAVIOURS.keys() <= MEASURES.keys()


def row(problem: str, text: str, outcome: str = "correct", **more: Any) -> Row:
    answer = text.partition("\\boxed{")[2].partition("}")[0] or None
    return Row(
        **{
            "problem": problem, "difficulty": "", "language": "en", "question": "q", "reference": "42",
            "open_ended": False, "prefill": "", "sample": 0, "text": text, "finish_reason": FinishReason.STOP,
            "outcome": Outcome(outcome), "answer": answer, "evidence": "", "num_tokens": len(text), **more,
        }
    )  # fmt: skip


RIGHT = "<think>6×7=42. Wait, let me check. 7×6=42. Yes.</think>\\boxed{42}"
WRONG = "<think>6×7=41</think>\\boxed{41}"
MIXED = "<think>先算6×7=42. So it is 42 then.</think>\\boxed{42}"
OPEN = "<think>6×7="


def test_a_summary_worked_by_hand() -> None:
    rows = [
        row("a", RIGHT), row("a", WRONG, "wrong"), row("b", MIXED),
        row("b", OPEN, "unparsable", finish_reason=FinishReason.LENGTH),
    ]  # fmt: skip
    found = summary(rows)
    assert {key: estimate.value for key, estimate in found.items()} == pytest.approx(
        {
            "pass_at_1": 0.5, "pass_at_2": 1.0, "majority_2": 0.75,  # a: 42 and 41 tie; b: 42 alone has a vote
            "at_once": 0.5, "works_out": 0.25, "unfinished": 0.25,
            "checks": 0.25, "backtracks": 0.0, "another_way": 0.0, "loops": 0.0, "mixed": 0.25, "open_tags": 0.25,
            "format": 0.75,
            # RIGHT: wait let me check yes; WRONG has no word; MIXED: two characters, then so it is then
            "language": (1 + 4 / 6) / 2,
            "length": (len(RIGHT) + len(WRONG) + len(MIXED) + len(OPEN)) / 4,
            "length_correct": (len(RIGHT) + len(MIXED)) / 2,
            "length_wrong": (len(WRONG) + len(OPEN)) / 2,
            "after_first": (len(RIGHT) - len("<think>6×7=42") + len(MIXED) - len("<think>先算6×7=42")) / 2,
            "truncated": 0.25,
        }
    )  # fmt: skip
    assert found["pass_at_1"] == mean_share([0.5, 0.5])


def test_what_was_not_measured_is_absent() -> None:
    found = summary([row("a", WRONG, "wrong", language=None)])
    assert {"mixed", "language", "length_correct", "after_first"}.isdisjoint(found)
    assert "format" not in summary([row("a", RIGHT, turns=(TurnRecord(3),))])  # no turn has the form of an answer
    assert summary([]) == {}
    failed = summary([row("a", RIGHT, "crashed")])
    assert failed.keys() == {"length", "language", "truncated", "majority_1"}


def test_a_summary_takes_phrases() -> None:
    rows = [row("a", "<think>Hold on.</think>\\boxed{42}")]
    assert summary(rows)["checks"].value == 0.0
    patterns = {**PATTERNS, Behaviour.CHECKS: {"en": ("hold on",)}}
    assert summary(rows, patterns=patterns)["checks"].value == 1.0


def test_pass_at_k_and_majority_as_the_evaluation_counts_them() -> None:
    outcomes = [["correct", "wrong", "wrong", "wrong"], ["correct", "correct", "crashed", "unparsable"], ["wrong"] * 4]
    texts = {"correct": RIGHT, "wrong": WRONG, "unparsable": OPEN, "crashed": OPEN}
    rows = [row(str(i), texts[one], one) for i, group in enumerate(outcomes) for one in group]
    found = summary(rows)
    # pass@2: 1 - C(3,2)/C(4,2), 1, 0; pass@4 leaves out the problem with three verdicts; the majority is 41, 42, 41.
    # of the pairs of 42, 41, 41, 41 three are ties; of 42, 42, -, - all but the last have a vote, for 42
    assert found["pass_at_2"].value == pytest.approx((0.5 + 1 + 0) / 3)
    assert found["pass_at_4"].value == pytest.approx(0.5)
    assert found["majority_4"].value == pytest.approx(1 / 3)
    assert found["majority_2"].value == pytest.approx((3 / 6 / 2 + 5 / 6 + 0) / 3)


def test_the_majority_of_all_samples_is_there_whatever_their_number() -> None:
    found = summary([row("a", RIGHT), row("a", RIGHT), row("a", WRONG, "wrong")])
    assert {key: found[key].value for key in found if key.startswith("majority")} == pytest.approx(
        {"majority_2": (1 + 1 / 2 + 1 / 2) / 3, "majority_3": 1.0}
    )


def test_a_vote_needs_verdicts_that_name_answers() -> None:
    played = [row("game", "16", outcome) for outcome in ("correct", "wrong")]
    silent = [row("a", OPEN, "unparsable")] * 2
    right = [row("b", RIGHT)] * 2
    assert "majority_2" not in summary(played)
    assert summary([*played, *silent, *right])["majority_2"].value == 0.5  # silence has no vote, and is wrong


def test_every_completion_counts_alike_in_length_and_truncated() -> None:
    # 0.1 + 0.1 + 0.7 over three problems of three samples would round otherwise
    rows = [row(str(i // 3), "x", "wrong", num_tokens=n) for i, n in enumerate([1, 0, 0, 1, 1, 0, 7, 7, 7])]
    assert estimate("length", rows).value == 24 / 9
    cut = [row("a", "x", finish_reason=reason) for reason in [FinishReason.LENGTH, *[FinishReason.STOP] * 2]]
    assert estimate("truncated", cut).value == 1 / 3


def test_difficulties_in_order_and_without_those_that_nobody_judged() -> None:
    rows = [row("a", RIGHT, difficulty="hard"), row("b", WRONG, "wrong", difficulty="easy")]
    rows += [row("c", RIGHT, difficulty="hard"), row("d", RIGHT, "crashed", difficulty="odd")]
    found = by_difficulty(rows)
    assert [(label, each.value) for label, each in found.items()] == [("easy", 0.0), ("hard", 1.0)]


def test_a_measure_of_the_users_own_is_one_of_the_metrics() -> None:
    rows = [row("a", RIGHT), row("b", WRONG)]
    own = summary(rows, more={"polite": lambda completion: float(completion.problem == "a")})
    assert (own["polite"].value, metric("polite").name, metric("polite").unit) == (0.5, "polite", "%")
    assert "polite" not in summary(rows)


def test_shares_that_verdicts_measure_are_metrics_and_other_measures_are_not() -> None:
    rows = [
        row("p", "x", measures={"valid": 1.0, "score": 2.5, "length": 0.5, "cut/score": 0.0}),
        row("q", "x", measures={"valid": 0.0, "score": 0.5}), row("r", "x"),
    ]  # fmt: skip
    estimates = summary(rows)
    assert estimates["valid"] == mean_share([1.0, 0.0])
    assert metric("valid").unit == "%"
    assert not {"score", "cut/score"} & estimates.keys()
    assert estimates["length"].value > 0.5  # a metric of that name is not a verdict's


def test_metrics_have_one_meaning() -> None:
    assert metric("pass_at_1").name == "pass@1"
    assert metric("pass_at_16").name == "pass@16"
    assert metric("majority_4").name == "maj@4"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([RIGHT, WRONG, MIXED, OPEN])), max_size=12))
def test_shares_lie_between_0_and_1_and_courses_add_up(pairs: list[tuple[str, str]]) -> None:
    found = summary([row(problem, text, "wrong" if text == WRONG else "correct") for problem, text in pairs])
    shares = {key: one for key, one in found.items() if key not in METRICS or METRICS[key].unit == "%"}
    assert all(0 <= one.low <= one.value <= one.high <= 1 for one in shares.values())
    if pairs:
        assert sum(found[key].value for key in ("at_once", "works_out", "unfinished")) == pytest.approx(1)


def test_without_test_the_dev_split_is_compared(fake_run: Any, group: Any) -> None:
    groups = [group("a", [("x", Outcome.WRONG)])]
    fake_run.evaluation("dev", 0, groups)
    assert before_after(Records.open(fake_run.path).intact()) is None
    fake_run.evaluation("dev", 2, groups).evaluation("dev", 4, groups).evaluation("test-before", 4, groups)
    pair = before_after(Records.open(fake_run.path).intact())
    assert pair is not None
    assert (pair.split, pair.before.step, pair.after.step) == ("dev", 0, 4)


def test_a_failed_verifier_leaves_the_problem_out_of_both_sides(fake_run: Any, group: Any) -> None:
    right, failed = ("x", Outcome.CORRECT), ("x", Outcome.CRASHED)
    fake_run.evaluation("test-before", 4, [group("a", [right, failed]), group("b", [failed, failed])])
    fake_run.evaluation("test-after", 4, [group("a", [right, right]), group("b", [right, right])])
    pair = before_after(Records.open(fake_run.path).intact())
    assert pair is not None
    assert by_problem(pair.before.rows, MEASURES["pass_at_1"]) == {"a": 1.0}
    assert verdict_errors(pair.before.rows) == 3
    assert pair.num_problems == 1
    assert changes(pair)["pass_at_1"].difference.value == 0.0


@pytest.mark.parametrize(
    ("estimate", "key", "sign", "expected"),
    [
        (Estimate(0.123, 0.098, 0.15), "pass_at_1", "", "12.3 % [9.8, 15.0]"),
        (Estimate(0.5, -0.00001, 0.6), "pass_at_1", "+", "+50.0 points [+0.0, +60.0]"),
        (Estimate(26.0, 20.0, 32.0), "length", "", "26.0 tokens [20.0, 32.0]"),
        (Estimate(1.0, -math.inf, math.inf), "length", "+", "+1.0 tokens"),  # one problem has no interval
        (Estimate(math.nan, math.nan, math.nan), "pass_at_1", "", "not measured"),
    ],
)
def test_numbers_as_people_read_them(estimate: Estimate, key: str, sign: str, expected: str) -> None:
    assert show(estimate, METRICS[key], sign) == expected


def test_calls_are_measured_where_there_are_any() -> None:
    rows = [row("p", "a", num_insertions=n, difficulty=d) for n, d in ((2, "hard"), (1, "hard"), (0, "easy"))]
    assert summary(rows)["calls"].value == pytest.approx(1.0)
    found = figures(rows)
    assert found["calls"]["value"] == pytest.approx(1.0)
    rates = {label: mean["value"] for label, mean in found["calls_by_difficulty"].items()}
    assert rates == pytest.approx({"easy": 0.0, "hard": 1.5})
    assert not {"calls", "calls_by_difficulty"} & figures(rows[2:]).keys()


def test_difference_is_paired_by_problem_not_by_order() -> None:
    estimate = compare({"a": 0.0, "b": 1.0, "c": 0.5}, {"c": 1.0, "a": 0.5, "b": 1.0})
    # differences 0.5, 0, 0.5: mean 1/3, standard error sqrt(1/12) / sqrt(3) = 1/6
    assert estimate.value == pytest.approx(1 / 3)
    assert estimate.high - estimate.value == pytest.approx(1.96 / 6, abs=1e-4)


def test_other_problems_are_refused_and_named() -> None:
    with pytest.raises(DataError, match="2 are on one side only, for example b"):
        compare({"a": 0.0, "b": 1.0}, {"a": 0.0, "c": 1.0})


def test_common_keeps_the_shared_problems() -> None:
    assert common({"a": 0.0, "b": 1.0}, {"c": 1.0, "b": 0.5}) == ({"b": 1.0}, {"b": 0.5})
