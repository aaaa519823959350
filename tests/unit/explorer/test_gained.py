"""Problems gained and lost, and pass@k against the start, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from groupwise.evaluation.metrics import before_after
from groupwise.explorer.answers import gained
from groupwise.explorer.run import report_of
from groupwise.runs.records import Records
from groupwise.types import Outcome

RIGHT, WRONG, CRASHED = Outcome.CORRECT, Outcome.WRONG, Outcome.CRASHED


@pytest.fixture
def run(fake_run: Any, group: Any) -> Any:
    def evaluation(*problems: tuple[str, list[Outcome]]) -> list[Any]:
        return [group(name, [("x", outcome) for outcome in outcomes]) for name, outcomes in problems]

    before = evaluation(("up", [WRONG] * 4), ("down", [RIGHT, RIGHT, WRONG, WRONG]), ("same", [RIGHT, WRONG] * 2))
    after = evaluation(("up", [RIGHT] * 3 + [WRONG]), ("down", [WRONG] * 4), ("same", [WRONG, RIGHT] * 2))
    return fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after)


def test_problems_move_up_and_down(run: Any) -> None:
    pair = before_after(Records.open(run.path).intact())
    assert pair is not None
    found = gained(pair)
    assert (found.num_gained, found.num_lost, found.num_same) == (1, 1, 1)
    assert [(one.before, one.after) for one in (*found.gained, *found.lost)] == [(0.0, 0.75), (0.5, 0.0)]
    assert [k for k, *_ in found.at_k] == [1, 2, 4]
    # pass@2 by hand: before 0, 1 - 1/6, 1 - 1/6; after 1, 0, 1 - 1/6
    _, before, after, difference = found.at_k[1]
    assert (before.value, after.value) == pytest.approx((5 / 9, 11 / 18))
    assert difference.value == pytest.approx(11 / 18 - 5 / 9)
    assert (found.at_k[2][1].value, found.at_k[2][2].value) == pytest.approx((2 / 3, 2 / 3))


def test_what_was_not_judged_counts_on_neither_side(run: Any) -> None:
    pair = before_after(Records.open(run.path).intact())
    assert pair is not None
    rows = [replace(row, outcome=CRASHED) if row.sample else row for row in pair.after.rows]
    found = gained(replace(pair, after=replace(pair.after, rows=tuple(rows))))
    assert [k for k, *_ in found.at_k] == [1]
    gone = [replace(row, outcome=CRASHED) for row in pair.after.rows]
    assert gained(replace(pair, after=replace(pair.after, rows=tuple(gone)))) == ([], [], 0, 0, 0, [])


def test_the_report_names_them(run: Any) -> None:
    tables = {table["title"]: table for table in report_of(run.path)["tables"]}
    counts = "1 are solved more often than before, 1 less often, 1 as often."
    assert tables["Problems gained and lost"]["note"] == counts
    assert [line["name"] for line in tables["Any of k tries"]["lines"]] == ["pass@1", "pass@2", "pass@4"]
