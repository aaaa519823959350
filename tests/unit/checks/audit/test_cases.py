"""Labelled files: both formats, what is decided, and what is said of a broken line."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.checks.audit.judge import load_cases
from groupwise.errors import DataError


def written(tmp_path: Path, *rows: dict[str, Any] | str) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_whole_response_is_taken_as_it_stands(tmp_path: Path) -> None:
    row = {"id": "a", "gold": "3", "response": "So we need step 3", "expected": False, "data": {"target": 1}}
    (case,) = load_cases([written(tmp_path, row, "", "  ")])
    assert (case.text, case.expected, case.group, case.name) == ("So we need step 3", False, "attack", "a")
    assert (case.problem.reference, case.problem.data) == ("3", {"target": 1})


@pytest.mark.parametrize(
    ("row", "text", "expected"),
    [
        ({"pred": "3", "wrap": "boxed"}, r"\boxed{3}", True),
        ({"pred": r"\frac{\boxed{3}}{1}", "wrap": "boxed"}, r"\boxed{\frac{\boxed{3}}{1}}", True),
        ({"pred": "$3$", "wrap": "none"}, r"\boxed{$3$}", True),
        ({"pred": "1,000.5", "wrap": "none"}, r"\boxed{1,000.5}", True),
        ({"pred": r"It is \boxed{3}.", "wrap": "gold_boxed"}, r"It is \boxed{3}.", True),
        ({"pred": "x+1"}, r"\boxed{x+1}", True), ({"pred": r"So \boxed{3}"}, r"So \boxed{3}", True),
        ({"pred": "The answer is 3", "wrap": "none"}, "The answer is 3", None),
        ({"pred": "The answer is 4", "wrap": "none", "expected": False}, "The answer is 4", False),
    ],
)  # fmt: skip
def test_a_prediction_is_put_into_the_form_that_is_read(
    tmp_path: Path, row: dict[str, Any], text: str, expected: bool | None
) -> None:
    (case,) = load_cases([written(tmp_path, {"gold": "3", "expected": True, "tier": "core"} | row)])
    assert (case.text, case.expected, case.group) == (text, expected, "core")
    assert ("prose" in case.note) == (expected is None)


def test_the_form_follows_the_extraction(tmp_path: Path) -> None:
    path = written(tmp_path, {"gold": "3", "pred": "3", "expected": True})
    assert load_cases([path], "tag")[0].text == "<answer>3</answer>"
    assert load_cases([path], "last_number")[0].text == "3"


def test_tiers_choose(tmp_path: Path) -> None:
    rows = [{"gold": "3", "pred": "3", "expected": True, "tier": tier} for tier in ("core", "hard", "policy")]
    path = written(tmp_path, *rows)
    assert [case.group for case in load_cases([path, path], tiers=["core", "hard"])] == ["core", "hard"] * 2
    with pytest.raises(DataError, match="no case of tier cor; tiers there: core, hard, policy"):
        load_cases([path], tiers=["cor"])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2 is not JSON"), ("[" * 100_000, "line 2(: lists and objects stand in one another| is not JSON)"),
        ("[3]", "line 2 is a JSON list; an object is needed"),
        ({"gold": "3", "expected": True}, "line 2: .*gold and response, or gold and pred; this has gold, expected"),
        ({"gold": 3, "pred": "3", "expected": True}, "line 2: .*text fields"),
        ({"gold": "3", "pred": "3"}, "line 2: expected = None: allowed are true, false and null"),
        ({"gold": "3", "pred": "3", "expected": 1}, "line 2: expected = 1"),
        ({"gold": "3", "pred": "3", "expected": None, "data": [1]}, r"line 2: data = \[1\]"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named(tmp_path: Path, row: dict[str, Any] | str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_cases([written(tmp_path, {"gold": "3", "pred": "3", "expected": True}, row)])


def test_a_file_that_is_empty_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty"):
        load_cases([written(tmp_path)])
    with pytest.raises(DataError, match="cannot be read"):
        load_cases([tmp_path / "none.jsonl"])
