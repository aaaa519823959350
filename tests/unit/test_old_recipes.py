"""Recipes of the version before sections were chosen by kind mean what today's of the same name mean.

`old/` holds them in the form that they had (numbers that were tuned since are today's), and the `config.toml` that a
run of `arithmetic.toml` wrote.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest

from groupwise.config import read_toml
from groupwise.pipeline import load_pipeline
from groupwise.trainers import load_recipe, recorded_recipe

TODAY = Path(__file__).parents[2] / "recipes"
OLD = Path(__file__).parent / "old"
RECORDED = "config_of_a_run.toml"
NAMES = sorted(path.name for path in OLD.glob("*.toml") if path.name != RECORDED)


def meaning(path: Path) -> Any:
    """Everything that a recipe sets, resolved."""
    if "pipeline" not in read_toml(path):
        return without_size(load_recipe(path).model_dump(mode="json"))
    recipe, stages = load_pipeline(path)
    whole = recipe.model_dump(mode="json", exclude={"stages"})
    return whole, [(stage.name, stage.makes, stage.inputs, without_size(stage.settings)) for stage in stages]


def without_size(settings: Any) -> Any:
    """Settings without the size of micro-batches, which today's recipes leave to the device."""
    if not isinstance(settings, dict):
        return settings
    return {key: without_size(value) for key, value in settings.items() if key != "tokens_per_micro_batch"}


def but_for_edition(settings: Any) -> Any:
    """Settings of the demo without its learning rate and steps, which fit the edition of the base model."""
    if isinstance(settings, dict) and settings.get("algorithm") == "grpo" and "optimizer" in settings:
        changed = {"optimizer": {**settings["optimizer"], "lr": 0}, "run": {**settings["run"], "num_steps": 0}}
        return {**settings, **changed}
    return settings


@pytest.mark.parametrize("name", NAMES)
def test_an_old_recipe_means_what_todays_means(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert but_for_edition(meaning(OLD / name)) == but_for_edition(meaning(TODAY / name))


def test_what_an_old_run_recorded_is_read_without_a_word() -> None:
    recorded = recorded_recipe(OLD / RECORDED)
    found = without_size(recorded.model_dump(mode="json"))
    assert but_for_edition(found) == but_for_edition(meaning(TODAY / "arithmetic.toml"))


def test_what_moved_is_said() -> None:
    with pytest.warns(UserWarning, match="task.name is task.kind now"):
        load_recipe(OLD / "arithmetic.toml")
