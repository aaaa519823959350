"""A trainer of one's own is one file: named in a recipe, run, resumed, exported, and a stage of a pipeline."""

from pathlib import Path

import pytest

from groupwise.checks.memory import plan
from groupwise.config import read_toml
from groupwise.errors import ConfigError
from groupwise.pipeline import load_pipeline
from groupwise.runs.directory import RunDirectory
from groupwise.trainers import load_recipe, recorded_recipe, train, trainer_of
from groupwise.trainers.base import with_precision

MY_TRAINER = '''
"""Pulls all weights towards zero: one step is one multiplication."""

from typing import NamedTuple

from pydantic import Field

from groupwise.config import Section
from groupwise.models.config import ModelConfig
from groupwise.models.policy import load_policy
from groupwise.trainers import Recipe, Trainer
from groupwise.trainers.base import with_precision
from groupwise.training.optimizer import Optimizer, OptimizerConfig
from groupwise.training.session import Start


class ShrinkConfig(Section):
    factor: float = Field(0.5, gt=0, lt=1)
    """What a step multiplies by."""


class ShrinkRecipe(Recipe):
    model: ModelConfig = ModelConfig()
    shrink: ShrinkConfig = ShrinkConfig()


class Step(NamedTuple):
    step: int
    norm: float


def shrink(recipe, restart, on_report):
    start = Start(recipe, recipe.run, restart)
    policy = load_policy(start.model_to_load(recipe.model))
    weights = [weight for _, weight in policy.state()]
    session = start.begin(policy, Optimizer(policy.trainable(), OptimizerConfig(), recipe.run.num_steps))
    for step in session.steps():
        for weight in weights:
            weight.mul_(recipe.shrink.factor)
        norm = sum(weight.abs().sum().item() for weight in weights)
        session.record({"step": step, "norm": norm}, {"step": step, "norm": norm})
        on_report(Step(step, norm))
    session.finish()
    return session


TRAINER = Trainer(ShrinkRecipe, shrink, line=lambda report: f"norm {report.norm:.1f}")
'''


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "my_trainer.py").write_text(MY_TRAINER)
    values = f'[run]\ndirectory = "{tmp_path}/run"\nnum_steps = 2\n[model]\ndevice = "cpu"\nnum_threads = 1\n'
    (tmp_path / "recipe.toml").write_text(f'algorithm = "my_trainer.py:TRAINER"\n{values}[shrink]\nfactor = 0.25\n')
    return tmp_path / "recipe.toml"


def test_it_trains(recipe: Path) -> None:
    reports: list[object] = []
    found = load_recipe(recipe)
    session = train(found, on_report=reports.append)
    first, second = (report.norm for report in reports)  # type: ignore[attr-defined]
    assert second == pytest.approx(first / 4)
    assert trainer_of(found).line(reports[0]) == f"norm {first:.1f}"
    run = RunDirectory(recipe.parent / "run")
    assert session.directory.steps() == [2]
    assert read_toml(run.config)["algorithm"] == f"{recipe.with_name('my_trainer.py')}:TRAINER"
    assert recorded_recipe(run.config) == with_precision(found)


def test_it_is_a_stage_of_a_pipeline(recipe: Path) -> None:
    stages = (
        '[pipeline]\ndirectory = "unused"\nseed = 7\n[model]\nnum_threads = 1\n[tasks.sums]\nkind = "arithmetic"\n'
        '[stages.small]\nalgorithm = "my_trainer.py:TRAINER"\nrun = { num_steps = 1 }\nshrink = { factor = 0.1 }\n'
    )
    recipe.with_name("pipeline.toml").write_text(stages)
    _, (stage,) = load_pipeline(recipe.with_name("pipeline.toml"))
    assert (stage.makes, stage.config.run.seed, stage.config.model.num_threads) == ("model", 7, 1)
    assert stage.files == ("base", str(recipe.with_name("my_trainer.py")))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("shrink.factor=3", r"(?s)recipe.toml cannot be used.*shrink.factor = 3"),
        ("algorithm=my_trainer.py:shrink", "algorithm: .*my_trainer.py:shrink is no trainer: allowed is a Trainer"),
        ("algorithm=grpoo", "recipe.toml: algorithm: there is no trainer 'grpoo'; did you mean 'grpo'"),
        ("algorithm=gone.py:TRAINER", "algorithm: there is no file gone.py"),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe(recipe, [override])


def test_memory_counts_what_a_trainer_says_it_trains_beside_the_policy() -> None:
    own, shared = (
        load_recipe(Path("recipes/ppo.toml"), [f"critic.backbone={backbone}"]) for backbone in ("own", "shared")
    )
    assert trainer_of(own).trained_beside(own) == ("critic",)
    assert trainer_of(shared).trained_beside(shared) == ()
    assert plan(own).peak > plan(shared).peak  # type: ignore[arg-type]
