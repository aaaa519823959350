"""A run as pages and comparisons read it: its evaluations, its best checkpoint, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.runs.records import Records
from groupwise.runs.rollouts import read_rows, write_rollouts
from groupwise.runs.row import rows_of
from groupwise.types import Outcome


def test_a_finished_run(finished_run: Any) -> None:
    run = Records.open(finished_run.path).intact()
    assert [line["step"] for line in run.metrics()] == [0, 1, 2, 3]
    assert [evaluation.step for evaluation in run.dev] == [0, 4]
    assert (run.finished, run.planned_steps, run.best_step) == (True, 4, 4)
    assert run.best == finished_run.path / "checkpoints" / "best"
    assert run.test_before is not None
    assert run.test_after is not None
    first = run.test_after.rows[0]
    assert (first.problem, first.outcome, first.num_tokens) == ("6×7", Outcome.CORRECT, len(first.text))
    assert "versions" in run.environment


def test_a_run_that_has_just_begun(fake_run: Any) -> None:
    run = Records.open(fake_run.path).intact()
    assert (run.metrics(), run.dev, run.test_before, run.test_after) == ([], [], None, None)
    assert (run.finished, run.best_step, run.best) == (False, None, None)


def test_a_step_done_twice_counts_once_and_a_torn_line_not_at_all(fake_run: Any) -> None:
    fake_run.steps(0, 1, 1)
    fake_run.directory.metrics.append({"step": 2, "loss": 5.5})  # lines without a kind are steps
    with fake_run.directory.metrics.path.open("a") as file:
        file.write('{"kind": "step", "st')
    run = Records.open(fake_run.path).intact()
    assert [line["step"] for line in run.metrics()] == [0, 1, 2]
    assert len(run.lines()) == 4


def test_an_evaluation_outlives_its_completions(fake_run: Any, group: Any) -> None:
    fake_run.evaluation("dev", 0, [group("a", [("x", Outcome.WRONG)])], best=True)
    fake_run.directory.evaluations("dev-step-000000").unlink()
    (evaluation,) = Records.open(fake_run.path).dev
    assert (evaluation.rows, evaluation.line["pass_at_1"]) == ((), [0.5, 0.4, 0.6])


def test_what_cannot_be_read_is_refused_by_name(finished_run: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        Records.open(tmp_path)
    run = Records.open(finished_run.path)
    finished_run.directory.evaluations("test-after").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="test-after"):
        _ = run.test_after
    (finished_run.path / "environment.json").write_text("no json\n")
    with pytest.raises(DataError, match=r"environment\.json"):
        _ = run.environment
    with finished_run.directory.metrics.path.open("a") as file:
        file.write("no json\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl cannot be read: line 9"):
        run.intact()


def test_a_row_is_the_same_from_memory_and_from_disk(tmp_path: Path, group: Any) -> None:
    groups = [group("a", [("x</think>1", Outcome.CORRECT), ("y", Outcome.UNPARSABLE)])]
    write_rollouts(tmp_path / "some.parquet", groups)
    assert read_rows(tmp_path / "some.parquet") == rows_of(groups)
