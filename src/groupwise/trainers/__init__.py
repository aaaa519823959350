"""Trainers: one file per algorithm's loop. A recipe's `algorithm` says which one runs it.

To add one: a module with a recipe, a function that runs it, and a `TRAINER`; and a line in `TRAINERS`. One of your own
needs no line: `algorithm = "my_trainer.py:TRAINER"`.
"""

from collections.abc import Sequence
from pathlib import Path

from groupwise.config import parse, read_recipe, read_recorded
from groupwise.errors import ConfigError
from groupwise.kinds import Allowed, Choices, beside
from groupwise.trainers.base import OnReport, Recipe, Trainer
from groupwise.training.session import Session

TRAINERS = Choices(
    "trainer",
    {name: f"groupwise.trainers.{name}:TRAINER" for name in ("grpo", "ppo", "sft", "reward_model", "dpo", "distill")},
    allowed=Allowed(lambda found: isinstance(found, Trainer), "a Trainer"),
)
"""The trainers by the name of their algorithm."""


def trainer_of(recipe: Recipe) -> Trainer:
    """The trainer that runs a recipe."""
    found: Trainer = TRAINERS.find(recipe.algorithm)
    return found


def train(recipe: Recipe, restart: bool = False, on_report: OnReport = lambda report: None) -> Session:
    """Run a recipe, or resume an interrupted run; returns the session, whose policy is the trained one."""
    return trainer_of(recipe).run(recipe, restart, on_report)


def load_recipe(path: Path, overrides: Sequence[str] = (), over: Sequence[str] = ()) -> Recipe:
    """Read a recipe of any algorithm, put others over it, by path or shipped, and apply `a.b=c` overrides.

    Raises:
        ConfigError: a file, a key or a value cannot be used.
    """
    data = read_recipe(path, overrides, over)
    algorithm, trainer = chosen(data.get("algorithm"), path.parent, f"{path}: ")
    return parse(trainer.recipe, {**data, "algorithm": algorithm}, source=str(path), folder=path.parent)


def recorded_recipe(path: Path) -> Recipe:
    """The resolved recipe that a run directory keeps, whichever version wrote it.

    Raises:
        ConfigError: it cannot be used any more.
    """
    data = read_recorded(path)
    algorithm, trainer = chosen(data.get("algorithm"), None, f"{path}: ")
    return parse(trainer.recipe, {**data, "algorithm": algorithm}, source=str(path))


def chosen(algorithm: object, folder: Path | None, where: str) -> tuple[str, Trainer]:
    """The trainer that a recipe names, and its name with the place of the user's file.

    Raises:
        ConfigError: there is none; begins with `where`.
    """
    if not isinstance(algorithm, str):
        raise ConfigError(f"{where}algorithm = {algorithm!r}; allowed are {', '.join(TRAINERS.table)}, file.py:NAME")
    try:
        name = beside(algorithm, folder)
        return name, TRAINERS.find(name)
    except ConfigError as error:
        raise ConfigError(f"{where}algorithm: {error}") from None


__all__ = [
    "TRAINERS", "OnReport", "Recipe", "Trainer", "chosen", "load_recipe", "recorded_recipe", "train", "trainer_of",
]  # fmt: skip
