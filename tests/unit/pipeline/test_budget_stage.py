"""Test-time compute as a stage: its figures are those of `measure_budget`, and a search meets its rivals' tokens."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import measure_budget
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.models.checkpoint import save_checkpoint
from groupwise.models.config import ModelConfig
from groupwise.models.policy import Policy
from groupwise.models.reward_model import start_reward_model
from groupwise.pipeline import load_pipeline
from groupwise.pipeline.base import Made, Workplace
from groupwise.pipeline.budget import Budget
from groupwise.pipeline.directory import StageDirectory, content_hash
from groupwise.runs.run import Run
from groupwise.trainers import Recipe

DIALS = {"methods": ["majority", "best_of_n", "beam"], "budgets": [1, 2], "samples": 2, "difficulty_samples": 0}


def no_training(recipe: Recipe) -> Run:
    raise AssertionError("nothing is trained here")


def tables(**settings: Any) -> dict[str, Any]:
    stage = {"kind": "budget", "task": "products", "path": "{base}", "num_problems": 2, **DIALS, **settings}
    return {
        "pipeline": {"directory": "unused", "seed": 3}, "model": {"path": "base"}, "sampling": {"max_tokens": 24},
        "tasks": {"products": {"kind": "arithmetic"}}, "stages": {"searches": stage},
    }  # fmt: skip


def the_stage(**settings: Any) -> Budget:
    stage = load_pipeline(tables(**settings))[1][0]
    assert isinstance(stage, Budget)
    return stage


@pytest.fixture(scope="module")
def prm(tiny_policy: Callable[..., Policy], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("models")
    save_checkpoint(folder / "policy", tiny_policy())
    save_checkpoint(folder / "prm", start_reward_model(ModelConfig(path=str(folder / "policy"), device="cpu")))
    return str(folder / "prm")


@pytest.fixture(scope="module")
def made(prm: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    stage, folder = the_stage(prm=prm), tmp_path_factory.mktemp("stage")
    work = Workplace(StageDirectory(folder), {}, no_training)
    first = stage.run(stage.config, work)
    assert stage.run(stage.config, work) == first  # what is there is not done again
    assert first.output_hash == content_hash(first.output)
    return first


def test_the_figures_are_those_of_the_command(made: Made, prm: str, tmp_path: Path) -> None:
    config = BudgetConfig(**{**DIALS, "seed": 3})
    options: dict[str, Any] = {"task": "arithmetic", "problems": 2, "max_tokens": 24, "directory": tmp_path}
    result = measure_budget("base", prm=prm, config=config, **options)
    assert made.statistics["problems"] == 2
    for point in result.points:
        budget = str(point.budget)
        assert made.statistics["accuracy"][point.method][budget] == pytest.approx(point.accuracy.value, abs=1e-6)
        assert made.statistics["tokens"][point.method][budget] == pytest.approx(point.policy_tokens, abs=1e-2)
    kept = [json.loads(line) for line in made.output.read_text("utf-8").splitlines()]
    assert kept[0]["checkpoint"] == "base"


def test_a_search_meets_the_others_at_its_own_tokens(made: Made) -> None:
    equal: Mapping[str, Any] = made.statistics["equal tokens"]
    assert set(equal) == {"beam/best", "beam/weighted", "beam/majority"}
    tokens, accuracy = made.statistics["tokens"], made.statistics["accuracy"]
    rival = "best_of_n/prm_last"
    small, large = tokens[rival]["1"], tokens[rival]["2"]
    for budget, of in equal["beam/best"].items():
        own = tokens["beam/best"][budget]
        assert (rival in of) == (small <= own <= large)
        if rival in of:
            share = (math.log(own) - math.log(small)) / (math.log(large) - math.log(small))
            wanted = accuracy[rival]["1"] + share * (accuracy[rival]["2"] - accuracy[rival]["1"])
            assert of[rival] == pytest.approx(wanted, abs=1e-3)


def test_a_search_without_a_reward_model_is_refused_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match="best_of_n chooses by a reward model"):
        the_stage()
    with pytest.raises(ConfigError, match="samples"):
        the_stage(methods=["majority"], budgets=[4])
