"""Rows of labelled steps: what is read is what was written, and what cannot be right is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError
from groupwise.tasks.step_rows import StepRow, check_training_rows, read_steps

GOOD: dict[str, Any] = {"prompt": "2+2?", "completions": ["2+2=4.", " Four"], "labels": [True, 0.7]}


def written(folder: Path, *records: object) -> Path:
    path = folder / "steps.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


def test_labels_stay_the_numbers_they_are(tmp_path: Path) -> None:
    [row, other] = read_steps(written(tmp_path, GOOD, {**GOOD, "labels": [None, 0], "method": "exact"}))
    assert row.labels == (1.0, 0.7)
    assert other.labels == (None, 0.0)
    assert other.first_error == 1
    assert other.provenance == {"method": "exact"}


def test_a_record_is_read_as_the_row_that_it_is_of(tmp_path: Path) -> None:
    row = StepRow("p", ("a", "b"), (0.25, None), "id", "dev", "easy", True, {"method": "import", "rollouts": [8, 8]})
    assert read_steps(written(tmp_path, row.record())) == [row]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [True]}, "1 labels for 2 steps"),
        ({"labels": [True, 1.5]}, "label 1.5"),
        ({"labels": [True, float("nan")]}, "label nan"),
        ({"labels": [True, "0.7"]}, "label '0.7'"),
        ({"completions": ["a", ""]}, "without text"),
        ({"completions": [], "labels": []}, "no step"),
        ({"completions": "a b"}, "list of steps"),
        ({"completions": ["a", 2]}, "must be a text"),
        ({"prompt": None}, "prompt"),
        ({"final_answer_correct": "false"}, "field 'final_answer_correct' is 'false'; true or false or null is needed"),
        ({"problem": {"a": 1}}, "field 'problem' is .*; text or a whole number is needed"),
    ],
)
def test_what_cannot_be_right_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"steps.jsonl, line 2: .*{message}"):
        read_steps(written(tmp_path, GOOD, {**GOOD, **change}))


PROCESSBENCH = {"id": "x", "problem": "q", "steps": ["a", "b"], "label": 1, "final_answer_correct": True}
MR_GSM8K = {
    "uuid": "u", "question": "q", "model_output_steps": ["a", "b"], "model_output_solution_correctness": "wrong",
    "model_output_solution_first_error_step": 2, "model_output_answer_correctness": "correct",
}  # fmt: skip
MISTAKE = {"input": "q", "steps": ["a", "b"], "answer": "(A)", "target": "(A)", "mistake_index": 1}


@pytest.mark.parametrize(
    ("form", "good", "change", "message"),
    [
        ("processbench", PROCESSBENCH, {"final_answer_correct": "false"}, "'final_answer_correct' is 'false'"),
        ("processbench", PROCESSBENCH, {"label": 1.7}, "'label' is 1.7; a whole number is needed"),
        ("processbench", PROCESSBENCH, {"label": True}, "'label' is True"),
        ("processbench", PROCESSBENCH, {"steps": "ab"}, "'steps' is 'ab'; a list is needed"),
        ("processbench", PROCESSBENCH, {"steps": ["a", 5]}, "'steps.1' is 5; text is needed"),
        ("mr_gsm8k", MR_GSM8K, {"model_output_answer_correctness": "Correct"}, "'correct' and 'wrong' are allowed"),
        ("mr_gsm8k", MR_GSM8K, {"model_output_solution_correctness": True}, "'correct' and 'wrong' are allowed"),
        ("big_bench_mistake", MISTAKE, {"answer": 1.0, "target": 1}, "'answer' is 1.0"),
        ("big_bench_mistake", MISTAKE, {"mistake_index": "1"}, "'mistake_index' is '1'"),
    ],
)
def test_fields_of_other_formats_are_of_their_types(
    tmp_path: Path, form: str, good: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    [row] = read_steps(written(tmp_path, good), form)
    assert (row.labels, row.final_answer_correct) == ((1.0, 0.0), True)
    with pytest.raises(DataError, match=rf"steps.jsonl, line 1: .*{message}"):
        read_steps(written(tmp_path, {**good, **change}), form)


def test_a_file_that_holds_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="no rows"):
        read_steps(tmp_path / "empty.jsonl")


def test_nothing_is_learnt_from_held_out_problems() -> None:
    rows = [StepRow("p", ("a",), (1.0,)), StepRow("p", ("a",), (1.0,), "problem/7", "test")]
    check_training_rows(rows[:1], "file")
    with pytest.raises(DataError, match=r"1 rows are of the test split .*problem/7"):
        check_training_rows(rows, "file")
    with pytest.raises(DataError, match="no step has a label"):
        check_training_rows([StepRow("p", ("a",), (None,))], "file")
