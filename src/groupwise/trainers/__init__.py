"""Trainers: one file per algorithm's loop. A recipe's `algorithm` says which one runs it."""

from collections.abc import Sequence
from pathlib import Path

from groupwise.config import parse, read_toml
from groupwise.errors import ConfigError
from groupwise.trainers.grpo import GrpoRecipe
from groupwise.trainers.sft import SftRecipe

RECIPES: dict[str, type[GrpoRecipe] | type[SftRecipe]] = {"grpo": GrpoRecipe, "sft": SftRecipe}
"""Recipe class of each algorithm."""


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> GrpoRecipe | SftRecipe:
    """Read a recipe of any algorithm and apply `a.b=c` overrides.

    Raises:
        ConfigError: the file, a key or a value cannot be used.
    """
    data = read_toml(path)
    algorithm = data.get("algorithm")
    if algorithm not in RECIPES:
        raise ConfigError(f"{path}: algorithm = {algorithm!r}; allowed are {', '.join(RECIPES)}")
    return parse(RECIPES[algorithm], data, overrides, source=str(path))
