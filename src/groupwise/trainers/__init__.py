"""Trainers: one file per algorithm's loop, named by a recipe's `algorithm`.

To add one: a module with a recipe, a function that runs it, and a `TRAINER`; and a line in `TRAINERS`. A user's own
needs no line: `algorithm = "my_trainer.py:TRAINER"`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.config import Changes, Source, named, parse, read_recipe, read_toml
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.errors import ConfigError
from groupwise.ranks.group import RANKS
from groupwise.runs.directory import RunDirectory, hold_run
from groupwise.runs.inputs import check_names, located, references
from groupwise.runs.inputs import compare as compare_inputs  # `compare` is a module of this room
from groupwise.runs.processes import resuming
from groupwise.runs.run import Run
from groupwise.trainers.base import OnReport, Recipe, Trainer, dated, with_chat, with_precision

TRAINERS = Choices(
    "trainer",
    {
        name: f"groupwise.trainers.{'preferences' if name == 'reward_model' else name}:TRAINER"
        for name in ("grpo", "ppo", "sft", "reward_model", "process_reward_model", "dpo", "distill")
    },
    allowed=Allowed(lambda part: isinstance(part, Trainer), "a Trainer"),
)
"""The trainers by the name of their algorithm."""


def trainer_of(recipe: Recipe) -> Trainer:
    """The trainer that runs a recipe."""
    trainer: Trainer = TRAINERS.find(recipe.algorithm)
    return trainer


def train(
    recipe: Recipe | Source,
    restart: bool = False,
    on_report: OnReport = lambda report: None,
    accept: Sequence[str] = (),
) -> Run:
    """Run a recipe, or resume an interrupted run. `groupwise train` is this function with a display.

    >>> train(load_recipe("recipes/arithmetic.toml", {"run.num_steps": 3}))  # doctest: +SKIP
    Run(runs/arithmetic: grpo, 3 of 3 steps, finished)

    Started by torchrun, it is one of several ranks that train one model together; the first one reports.

    Args:
        recipe: what `load_recipe` gives, or what it takes.
        restart: delete an earlier run in `run.directory` first; else the run that is there resumes.
        on_report: called with every report as it is made: a `StepReport` for each step, a `DevReport` for each dev
            evaluation, and what else the trainer of the algorithm reports.
        accept: inputs (by key, path or file name) that may have changed since the run began; the ledger says so.

    Returns:
        The run. It is not `finished` where Ctrl-C stopped it after a step; the same call then resumes there.

    Raises:
        ConfigError: what the recipe names cannot be used; DataError, ModelError: problems, or a model, cannot be read.
        VerifierError: the verifier rejects reference answers, pays for what is no answer, or fails too often.
        CheckpointError: the directory holds a finished run, one of another recipe or other inputs, or is in use.
        InvariantError: a check of the training itself failed.
        RankError: another rank was lost.
    """
    given = load_recipe(recipe) if isinstance(recipe, str | Path | Mapping) else recipe
    with resuming(Path(given.run.directory)), RANKS.joined(given.ranks):
        RANKS.by_first(lambda: _compare_inputs(given, restart, accept))
        settled = with_precision(dated(with_chat(given), restart))
        tell: OnReport = on_report if RANKS.is_first else lambda report: None
        return Run(trainer_of(settled).run(settled, restart, tell).directory)


def _compare_inputs(recipe: Recipe, restart: bool, accept: Sequence[str]) -> None:
    run, inputs = RunDirectory(Path(recipe.run.directory)), references(recipe)
    check_names(inputs, accept)
    if restart or not run.has_begun:
        return
    with hold_run(run.path):
        compare_inputs(
            run.path, inputs, accept,
            "Put back what was there, begin again with --restart (`restart=True`), or go on with --accept-changed NAME "
            "for each, which the ledger then says",
        )  # fmt: skip


def load_recipe(source: Source, changes: Changes = (), extends: Sequence[str] = ()) -> Recipe:
    """Read a recipe of any algorithm, put others over it, and apply changes.

    >>> load_recipe("recipes/arithmetic.toml", {"run.num_steps": 3, "grpo.group_size": 8}).run.num_steps
    3

    Args:
        source: a TOML file, the name of a shipped recipe, or the tables themselves as nested dictionaries.
        changes: values by dotted key, or `a.b=c` texts as after `--set`.
        extends: recipes put over it before the changes, by path or shipped, such as `algorithms/dapo.toml`.

    Returns:
        The recipe of its algorithm, frozen and checked: a `GrpoRecipe` for `algorithm = "grpo"`.

    Raises:
        ConfigError: a file, a key or a value cannot be used; an unknown key is answered with the nearest known one.
    """
    name, folder = named(source)
    data = located(read_recipe(source, changes, extends), Path(name))
    algorithm, trainer = chosen(data.get("algorithm"), folder, f"{name}: ")
    return parse(trainer.recipe, {**data, "algorithm": algorithm}, source=name, folder=folder)


def recorded_recipe(path: Path) -> Recipe:
    """Read the resolved recipe that a run directory keeps; raises ConfigError where it cannot be used any more."""
    data = located(read_toml(path), path)
    algorithm, trainer = chosen(data.get("algorithm"), None, f"{path}: ")
    return parse(trainer.recipe, {**data, "algorithm": algorithm}, source=str(path))


def chosen(algorithm: object, folder: Path | None, where: str) -> tuple[str, Trainer]:
    """Find the trainer that a recipe names, and its name with the user's file located; errors begin with `where`."""
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
