import math
from typing import Any

import pytest

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import MEASURES, METRICS, before_after, by_problem, changes, show, verdict_errors
from groupwise.evaluation.run_data import load_run
from groupwise.types import Outcome


def test_before_and_after(finished_run: Any) -> None:
    pair = before_after(load_run(finished_run.path))
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


def test_without_test_the_dev_split_is_compared(fake_run: Any, group: Any) -> None:
    groups = [group("a", [("x", Outcome.WRONG)])]
    fake_run.evaluation("dev", 0, groups)
    assert before_after(load_run(fake_run.path)) is None
    fake_run.evaluation("dev", 2, groups).evaluation("dev", 4, groups).evaluation("test-before", 4, groups)
    pair = before_after(load_run(fake_run.path))
    assert pair is not None
    assert (pair.split, pair.before.step, pair.after.step) == ("dev", 0, 4)


def test_a_failed_verifier_leaves_the_problem_out_of_both_sides(fake_run: Any, group: Any) -> None:
    right, failed = ("x", Outcome.CORRECT), ("x", Outcome.CRASHED)
    fake_run.evaluation("test-before", 4, [group("a", [right, failed]), group("b", [failed, failed])])
    fake_run.evaluation("test-after", 4, [group("a", [right, right]), group("b", [right, right])])
    pair = before_after(load_run(fake_run.path))
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
