"""What a stage is: declared inputs, what it makes, settings that its fingerprint covers, and one function that runs it.

A stage's file has a `Section` with its settings and a class with `run`; `STAGES` in `__init__` lists the classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from groupwise.pipeline.directory import StageDirectory
from groupwise.pipeline.fingerprint import code_of
from groupwise.pipeline.recipe import BASE, PipelineRecipe, references, resolved
from groupwise.trainers import Recipe
from groupwise.training.session import Session

Makes = Literal["model", "reward_model", "data"]
"""`model`: a policy's checkpoint. `reward_model`: a reward model's. `data`: a file of rows."""


class Made(NamedTuple):
    """What a stage made; everything here is the same on a repeat and after a resume."""

    output: Path
    output_hash: str
    sampled_tokens: int = 0
    """Completion tokens drawn to learn from; what was drawn to evaluate is not among them."""
    trained_tokens: int = 0
    """Tokens that a loss was computed on, each as often as it was."""
    statistics: Mapping[str, Any] = {}
    """What there is to say about it, JSON: of data, what was kept and why the rest was dropped."""


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C: the stage stopped between two steps and goes on there next time."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a stage gets to work with."""

    directory: StageDirectory
    outputs: Mapping[str, str]
    """Paths of what the stages before it made, by name."""
    train: Callable[[Recipe], Session]
    """Runs a trainer's recipe, or goes on with an interrupted run, and shows it."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Told how far a long piece of work is: (what, done, total)."""


class Stage(ABC):
    """One stage of a pipeline, checked and ready to run."""

    kind: ClassVar[str]
    algorithm: str | None = None
    """The trainer's algorithm, of stages that train."""

    def __init__(self, name: str, recipe: PipelineRecipe, table: Mapping[str, Any]) -> None:
        self.name, self.recipe = name, recipe
        self.settings: dict[str, Any] = self.check(resolved(table, {BASE: recipe.model.path}))
        """Everything that decides what the stage makes, JSON, its inputs as `{name}`."""

    @property
    @abstractmethod
    def makes(self) -> Makes:
        """What the stage makes."""

    @property
    def code(self) -> str:
        """The version of the code that decides what the stage makes: of its module and the parts it names."""
        return code_of(type(self).__module__, self.settings)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the stages whose output it reads, in the order of their mention."""
        return tuple(dict.fromkeys(references(self.settings)))

    @abstractmethod
    def check(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The whole settings of a stage from its table.

        Raises:
            ConfigError: the table cannot be used.
        """

    @abstractmethod
    def run(self, work: Workplace) -> Made:
        """Do the work, or go on with it where it was interrupted.

        Raises:
            Interrupted: it was stopped before its end.
        """
