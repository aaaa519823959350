"""Measuring the models of a pipeline: which tools the completions of a task may use."""

import math
from pathlib import Path
from typing import Any

import pytest

from groupwise.algorithms.statistics import Estimate
from groupwise.pipeline import evaluation, load_pipeline
from groupwise.pipeline.directory import StageDirectory
from groupwise.rollout.sampling import SamplingConfig

CALCULATOR = {"calculator": {"kind": "calculator"}}


def test_every_task_has_its_own_tools_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = dict[str, SamplingConfig]()

    def sampled(actors: Any, problems: Any, num_samples: int, sampling: SamplingConfig, draws: Any) -> list[Any]:
        asked[actors.template.prompt.split()[-1]] = sampling
        return []

    monkeypatch.setattr(evaluation, "sample_and_score", sampled)
    monkeypatch.setattr(evaluation, "summary", lambda rows, more: {"length": Estimate(3.0, -math.inf, math.inf)})
    monkeypatch.setattr(evaluation, "write_rollouts", lambda place, groups: None)
    template = "{{question}} {}"
    names = ("with", "bare", "as")
    tasks = {name: {"kind": "arithmetic", "template": {"prompt": template.format(name)}} for name in names}
    recipe, _ = load_pipeline({
        "pipeline": {"directory": str(tmp_path)}, "tasks": tasks,
        "sampling": {"tools": {"mine": {"kind": "calculator", "max_calls": 2}}},
        "measure": {"num_problems": 1, "tools": {"with": CALCULATOR, "bare": {}}},
        "stages": {"a": {"algorithm": "sft", "run": {"num_steps": 1}, "data": {"source": "jsonl", "path": "x"}}},
    })  # fmt: skip
    stage = StageDirectory(tmp_path / "a")
    measured = evaluation.evaluate_model(recipe, "base", stage)
    assert measured["as"]["length"] == [3.0, None, None]  # what JSON can say
    assert {name: list(one.tools) for name, one in asked.items()} == {
        "with": ["calculator"], "bare": [], "as": ["mine"]
    }  # fmt: skip
