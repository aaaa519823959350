"""The stage `step_labels`: rows that a process reward model learns from, by the plan and by rollouts."""

from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.evaluation.row import Row
from groupwise.pipeline import load_pipeline
from groupwise.pipeline.base import Workplace
from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.step_labels import Completer, Cut, Rolled, StepLabelsConfig, cut_rows, estimated
from groupwise.runs.run import Run
from groupwise.tasks.step_rows import StepRow, read_step_rows
from groupwise.trainers import Recipe
from groupwise.types import FinishReason, Outcome


def pipeline(folder: Path, **stage: Any) -> dict[str, Any]:
    return {
        "pipeline": {"directory": str(folder / "made"), "seed": 3},
        "model": {"path": "base", "device": "cpu", "num_threads": 1},
        "sampling": {"max_tokens": 96},
        "tasks": {"sums": {"kind": "arithmetic"}},
        "stages": {
            "labels": {
                "kind": "step_labels",
                "path": "{base}",
                "num_problems": 2,
                "num_samples": 2,
                "task": "sums",
                **stage,
            }
        },
    }


def made(folder: Path, **settings: Any) -> tuple[list[StepRow], bytes]:
    _, [stage] = load_pipeline(pipeline(folder, **settings))
    folder.mkdir(exist_ok=True)
    output = stage.run(stage.config, Workplace(StageDirectory(folder), {}, no_training)).output
    return read_step_rows(output), output.read_bytes()


def no_training(recipe: Recipe) -> Run:
    raise AssertionError("nothing is trained here")


def test_labels_by_the_plan(tmp_path: Path) -> None:
    rows, _ = made(tmp_path)
    assert rows
    for row in rows:
        kinds = row.provenance["kinds"]
        assert row.labels == tuple(float(kind in ("sound", "idle")) for kind in kinds)
        assert row.provenance["method"] == "exact"
        assert row.provenance["model"] == "base"
        assert row.split == "train"
        assert row.final_answer_correct or row.labels[-1] == 0


def test_labels_by_rollouts_are_the_same_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.pipeline.step_labels.PROBLEMS_PER_PART", 1)
    settings = {"method": "monte_carlo", "rollouts": 2, "estimate": "soft"}
    rows, whole = made(tmp_path / "a", **settings)
    for row in rows:
        expected = [s / n for s, n in zip(row.provenance["successes"], row.provenance["rollouts"], strict=True)]
        assert row.labels == (*expected, float(bool(row.final_answer_correct)))
    right, calls = Completer.roll, []

    def killed(self: Completer, prefixes: Any) -> list[Rolled]:
        calls.append(prefixes)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return right(self, prefixes)

    monkeypatch.setattr(Completer, "roll", killed)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "b", **settings)
    assert len(calls) == 2
    assert made(tmp_path / "b", **settings)[1] == whole
    assert calls[1] == calls[2]  # what was lost is done again
    assert calls[0] not in calls[2:]  # what was kept is not


def test_estimates() -> None:
    rolled = [Rolled(0, 8, 1), Rolled(1, 8, 1), Rolled(4, 4, 1), Rolled(0, 0, 1)]

    def config(**more: Any) -> Any:
        return StepLabelsConfig.model_construct(**{"estimate": "hard", "min_success": 1, **more})

    assert estimated(rolled, config()) == [0.0, 1.0, 1.0, None]
    assert estimated(rolled, config(min_success=2)) == [0.0, 0.0, 1.0, None]
    assert estimated(rolled, config(estimate="soft")) == [0.0, 0.125, 1.0, None]


def test_what_cannot_be_cut_is_counted() -> None:
    def row(**changes: Any) -> Row:
        fields: dict[str, Any] = {
            "problem": "p", "difficulty": "", "language": "en", "question": "", "reference": "", "open_ended": False,
            "prefill": "<think>", "sample": 0, "text": "1+1=2. Two.</think>2. Yes.", "evidence": "", "num_tokens": 3,
            "finish_reason": FinishReason.STOP, "outcome": Outcome.CORRECT, "answer": "2", "num_read": 3,
        }  # fmt: skip
        return Row(**{**fields, **changes})

    rows = [row(), row(text=""), row(outcome=Outcome.CRASHED), row(finish_reason=FinishReason.LENGTH)]
    [cut], dropped = cut_rows(rows, "sentence")
    assert isinstance(cut, Cut)
    assert cut.steps == ("1+1=2. ", "Two.</think>2. Yes.")
    assert cut.prefixes == ["<think>1+1=2. "]
    assert dropped == {"empty": 1, "not judged": 1, "cut off": 1}


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"step": "("}, "no regular expression"),
        ({"rollouts": 4}, "rollouts"),
        ({"method": "monte_carlo", "rollouts": 2, "min_success": 3}, "at most rollouts = 2"),
        ({"split": "test"}, "split"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, stage: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_pipeline(pipeline(tmp_path, **stage))
