"""Evaluation of process reward models: figures by hand, formats of others, and the command."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from groupwise.cli.main import app
from groupwise.errors import ConfigError, DataError, ModelError
from groupwise.evaluation.steps import evaluate_scorer, evaluate_steps, judge_scores
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.tasks.step_rows import StepRow, read_steps

OTHERS = Path(__file__).parents[4] / "shared" / "data"
ROWS = [
    StepRow("p", ("a", "b"), (1.0, 0.0), final_answer_correct=True),
    StepRow("p", ("a", "b"), (1.0, 1.0), final_answer_correct=True),
    StepRow("p", ("a", "b", "c"), (0.0, None, None), final_answer_correct=False),
]
SCORES = [[0.9, 0.2], [0.8, 0.7], [0.6, 0.1, 0.3]]


def test_figures_by_hand() -> None:
    found = judge_scores(ROWS, SCORES, 0.5)
    assert found.first_error_found.value == 0.5  # the third is named one step too late
    assert found.correct_passed.value == 1
    assert found.f1 == pytest.approx(2 / 3)
    assert found.wrong_working_found.value == 1
    assert found.lowest_at_end.value == pytest.approx(2 / 3)
    assert found.auc == 1  # .9, .8, .7 against .2, .6; what has no label does not count
    assert found.calibration_error == pytest.approx((0.1 + 0.2 + 0.2 + 0.3 + 0.6) / 5)
    assert judge_scores([StepRow("q", ("a",), (None,)), *ROWS], [[0.1], *SCORES], 0.5) == found
    assert math.isnan(judge_scores(ROWS[1:2], SCORES[1:2], 0.5).f1)


def test_a_score_that_is_no_number_is_named(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    broken = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    with torch.no_grad():
        broken.head.weight.fill_(math.nan)
    with pytest.raises(ModelError, match="gives nan to step 0 of the row that starts with 'p': only numbers"):
        evaluate_scorer(broken, ROWS, [], None)


def test_what_nobody_labelled_is_not_measured(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    save_checkpoint(tmp_path / "prm", start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu")))
    unknown = StepRow("p", ("a", "b"), (None, None)).record()
    found = evaluate_steps(tmp_path / "prm", write(tmp_path / "rows", *(row.record() for row in ROWS), unknown))
    assert found == evaluate_steps(tmp_path / "prm", write(tmp_path / "known", *(row.record() for row in ROWS)))
    with pytest.raises(DataError, match="none: no step has a label"):
        evaluate_steps(tmp_path / "prm", write(tmp_path / "none", unknown))


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
    return path


def test_formats_of_others(tmp_path: Path) -> None:
    bench = {"id": "x-1", "problem": "p", "steps": ["a", "b", "c"], "final_answer_correct": True, "label": 1}
    [row, sound] = read_steps(write(tmp_path / "a", bench, {**bench, "label": -1}), "processbench")
    assert (row.labels, row.first_error, row.final_answer_correct) == ((1.0, 0.0, None), 1, True)
    assert "".join(row.steps) == "a\nb\nc\n"
    assert sound.first_error is None
    shepherd = {"input": "Q Step 1: x ки\nStep 2: y ки", "label": "Q Step 1: x +\nStep 2: y -"}
    [row] = read_steps(write(tmp_path / "b", shepherd), "math_shepherd")
    assert (row.prompt, row.steps, row.labels) == ("Q ", ("Step 1: x", "\nStep 2: y"), (1.0, 0.0))


@pytest.mark.parametrize(
    ("record", "format", "message"),
    [
        ({"problem": "p"}, "processbench", "line 1 is not of this format: KeyError"),
        (
            {"id": 1, "problem": "p", "steps": ["a"], "final_answer_correct": True, "label": 4},
            "processbench",
            "step 4 of 1",
        ),
        ({"input": "Step 1: x ки", "label": "Step 1: x"}, "math_shepherd", "0 labels for 1 steps"),
    ],
)
def test_rows_of_another_format_are_named(tmp_path: Path, record: dict[str, Any], format: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_steps(write(tmp_path / "a", record), format)
    with pytest.raises(ConfigError, match="format 'x': allowed are"):
        read_steps(tmp_path / "a", "x")


@pytest.mark.parametrize(
    ("file", "format", "rows", "wrong"),
    [
        ("big_bench_mistake/multistep_arithmetic.jsonl", "big_bench_mistake", 300, 238),
        ("mr_gsm8k_subset/mr_gsm8k_subset.jsonl", "mr_gsm8k", 590, 590),
        ("prm_format_samples/math_shepherd_samples.jsonl", "math_shepherd", None, None),
        ("prm_format_samples/prm800k_samples.jsonl", "prm800k", None, None),
        ("prm_format_samples/math_aps_samples.jsonl", "math_aps", None, None),
    ],
)
def test_files_of_others(file: str, format: str, rows: int | None, wrong: int | None) -> None:
    if not (OTHERS / file).exists():
        pytest.skip(f"{file} is not here")
    found = read_steps(OTHERS / file, format)
    if rows is not None:
        assert len(found) == rows
        assert sum(row.first_error is not None for row in found) == wrong
    assert all(row.provenance["format"] == format and row.provenance["line"] >= 1 for row in found)


def rated(text: str, rating: int | None) -> dict[str, Any]:
    return {"text": text, "rating": rating}


def test_ratings_of_people(tmp_path: Path) -> None:
    steps = [
        {"completions": [rated("a", 1), rated("A", 0)], "human_completion": None, "chosen_completion": 0},
        {"completions": [rated("b", -1)], "human_completion": {"text": "B"}, "chosen_completion": None},
        {"completions": [rated("c", 0)], "human_completion": None, "chosen_completion": 0},
        {"completions": [rated("d", -1), rated("D", -1)], "human_completion": None, "chosen_completion": None},
    ]
    record = {"question": {"problem": "q"}, "label": {"steps": steps, "finish_reason": "found_error"}}
    path, *others = read_steps(write(tmp_path / "a", record), "prm800k")
    assert (path.prompt, path.steps) == ("q\n", ("a\n", "B\n", "c\n", "d\n"))
    assert path.labels == (1.0, None, 1.0, 0.0)  # nobody rated what the labeller wrote
    assert path.final_answer_correct is False
    assert [(row.steps[-1], row.labels) for row in others] == [
        ("A\n", (1.0,)), ("b\n", (None, 0.0)), ("D\n", (None, None, None, 0.0)),
    ]  # fmt: skip
    assert others[2].steps == ("a\n", "B\n", "c\n", "D\n")
    assert {row.provenance["path"] for row in others} == {"alternative"}


def test_prefixes_of_a_tree_become_steps(tmp_path: Path) -> None:
    worth = {"q": 0.5, "q a": 0.25, "q a b": 0.0, "q a bc": 1.0, "q z": 1.0}
    steps = [{"solution_prefix": text, "mc_value": value} for text, value in worth.items()]
    found = read_steps(
        write(tmp_path / "a", {"question": "q", "reasoning_steps": steps, "question_id": "7"}), "math_aps"
    )
    assert [(row.steps, row.labels) for row in found] == [
        ((" a", " b", "c"), (0.25, 0.0, 1.0)), ((" z",), (1.0,)),
    ]  # fmt: skip


def test_the_command(tiny_policy: Callable[..., Policy], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "policy", tiny_policy())
    made = start_reward_model(ModelConfig(path=str(tmp_path / "policy"), device="cpu"))
    save_checkpoint(tmp_path / "model", made)
    file = write(tmp_path / "rows", *(row.record() for row in ROWS))
    asked = ["eval", str(tmp_path / "model"), "--steps", str(file)]
    result = CliRunner().invoke(app, [*asked, "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["threshold"] == 0.5
    assert found["rows"] == 3
    assert found["auc"] == 0.5  # a new head scores everything the same
    assert "F1 of the first mistake" in CliRunner().invoke(app, asked, catch_exceptions=False).stdout
    other = write(tmp_path / "dev", *(row.record() for row in ROWS))
    assert evaluate_steps(tmp_path / "model", file, dev=other).threshold != 0
    with pytest.raises(DataError, match="flatters"):
        evaluate_steps(tmp_path / "model", file, dev=file)
