"""Trainers: one file per algorithm's loop. A recipe's `algorithm` says which one runs it.

To add one: a module with a recipe and a function that runs it, a line in `RECIPES`, and one in `LEARNERS` or
`FROM_DATA`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.config import parse, read_recipe
from groupwise.errors import ConfigError
from groupwise.trainers.distill import DistillRecipe, train_distill
from groupwise.trainers.dpo import DpoRecipe, train_dpo
from groupwise.trainers.grpo import GrpoRecipe, grpo_learner
from groupwise.trainers.ppo import PpoRecipe, ppo_learner
from groupwise.trainers.report import SILENT, Observer
from groupwise.trainers.reward_model import RewardModelRecipe, train_reward_model
from groupwise.trainers.rl import MakeLearner, RlRecipe, train_rl
from groupwise.trainers.sft import SftRecipe, train_sft
from groupwise.training.session import Session

Recipe = GrpoRecipe | PpoRecipe | SftRecipe | RewardModelRecipe | DpoRecipe | DistillRecipe

RECIPES: Mapping[str, type[Recipe]] = {
    "grpo": GrpoRecipe,
    "ppo": PpoRecipe,
    "sft": SftRecipe,
    "reward_model": RewardModelRecipe,
    "dpo": DpoRecipe,
    "distill": DistillRecipe,
}
"""Recipe class of each algorithm."""

LEARNERS: Mapping[str, MakeLearner] = {"grpo": grpo_learner, "ppo": ppo_learner}
"""What each reinforcement-learning algorithm brings to the loop."""

OnReport = Callable[[Any], None]
FROM_DATA: Mapping[str, Callable[[Any, bool, OnReport], Session]] = {
    "sft": train_sft,
    "reward_model": train_reward_model,
    "dpo": train_dpo,
    "distill": train_distill,
}
"""What runs each algorithm that learns from data: (recipe, restart, called with every report)."""


def run_rl(recipe: RlRecipe, restart: bool = False, observer: Observer = SILENT) -> Session:
    """Run a reinforcement-learning recipe, or go on with an interrupted run."""
    return train_rl(recipe, LEARNERS[recipe.algorithm], restart, observer)


def load_recipe(path: Path, overrides: Sequence[str] = (), over: Sequence[str] = ()) -> Recipe:
    """Read a recipe of any algorithm, put others over it, by path or shipped, and apply `a.b=c` overrides.

    Raises:
        ConfigError: a file, a key or a value cannot be used.
    """
    data = read_recipe(path, overrides, over)
    algorithm = data.get("algorithm")
    if not isinstance(algorithm, str) or algorithm not in RECIPES:
        raise ConfigError(f"{path}: algorithm = {algorithm!r}; allowed are {', '.join(RECIPES)}")
    return parse(RECIPES[algorithm], data, source=str(path), folder=path.parent)
