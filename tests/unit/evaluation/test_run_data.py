from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError, DataError
from groupwise.evaluation.run_data import load_run
from groupwise.runs.rollouts import read_rows, write_rollouts
from groupwise.runs.row import rows_of
from groupwise.types import Outcome


def test_a_finished_run(finished_run: Any) -> None:
    run = load_run(finished_run.path)
    assert [line["step"] for line in run.steps] == [0, 1, 2, 3]
    assert [one.step for one in run.dev] == [0, 4]
    assert (run.finished, run.num_steps, run.best_step) == (True, 4, 4)
    assert run.best_checkpoint == finished_run.path / "checkpoints" / "best"
    assert run.test_before is not None
    assert run.test_after is not None
    first = run.test_after.rows[0]
    assert (first.problem, first.outcome, first.num_tokens) == ("6×7", Outcome.CORRECT, len(first.text))
    assert "versions" in run.environment


def test_a_run_that_has_just_begun(fake_run: Any) -> None:
    run = load_run(fake_run.path)
    assert (run.steps, run.dev, run.test_before, run.test_after) == ((), (), None, None)
    assert (run.finished, run.best_step, run.best_checkpoint) == (False, None, None)


def test_a_step_done_twice_counts_once_and_a_torn_line_not_at_all(fake_run: Any) -> None:
    fake_run.steps(0, 1, 1)
    with fake_run.directory.metrics.path.open("a") as file:
        file.write('{"kind": "step", "st')
    assert [line["step"] for line in load_run(fake_run.path).steps] == [0, 1]


def test_lines_without_a_kind_are_steps(fake_run: Any) -> None:
    fake_run.directory.metrics.append({"step": 0, "loss": 5.5})
    assert load_run(fake_run.path).steps == ({"step": 0, "loss": 5.5},)


def test_an_evaluation_outlives_its_completions(fake_run: Any, group: Any) -> None:
    fake_run.evaluation("dev", 0, [group("a", [("x", Outcome.WRONG)])], best=True)
    fake_run.directory.evaluations("dev-step-000000").unlink()
    (one,) = load_run(fake_run.path).dev
    assert (one.rows, one.line["pass_at_1"]) == ((), [0.5, 0.4, 0.6])


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a run directory"):
        load_run(tmp_path)


@pytest.mark.parametrize("name", ["environment.json", "metrics.jsonl"])
def test_a_damaged_file_is_named(fake_run: Any, name: str) -> None:
    (fake_run.path / name).write_text("no json\n")
    with pytest.raises(DataError, match=name):
        load_run(fake_run.path)


def test_damaged_rollouts_are_named(finished_run: Any) -> None:
    finished_run.directory.evaluations("test-after").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="test-after"):
        load_run(finished_run.path)


def test_a_row_is_the_same_from_memory_and_from_disk(tmp_path: Path, group: Any) -> None:
    groups = [group("a", [("x</think>1", Outcome.CORRECT), ("y", Outcome.UNPARSABLE)])]
    write_rollouts(tmp_path / "some.parquet", groups)
    assert read_rows(tmp_path / "some.parquet") == rows_of(groups)
