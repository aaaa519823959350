"""A stage: settings that its fingerprint covers, the kind of thing it makes, and one function that runs it.

A stage's file has a class with `makes`, its settings as `Config`, and `run`. Its inputs are the artifacts that its
settings name. A line in `STAGES` gives it a name; a stage in your file needs no line: `kind = "my_stage.py:MyStage"`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import Field

from groupwise.config import ReadIf, Section, merged, parse
from groupwise.config.places import Place
from groupwise.config.schema import SHIPPED, Makes, files, named, stage_of
from groupwise.models.config import ModelConfig
from groupwise.pipeline.directory import StageDirectory, write_rows
from groupwise.pipeline.fingerprint import code_of
from groupwise.pipeline.recipe import BASE, PipelineRecipe, Shared, completed, with_tasks
from groupwise.rollout.engine import EngineConfig
from groupwise.rollout.sampling import SamplingConfig
from groupwise.runs.run import Run
from groupwise.trainers import Recipe
from groupwise.training.config import RunConfig


class Made(NamedTuple):
    """The result of a stage; everything here is the same on a repeat and after a resume."""

    output: Path
    output_hash: str
    sampled_tokens: int = 0
    """Completion tokens drawn to learn from, without those of evaluations."""
    trained_tokens: int = 0
    """Tokens in all losses, counted once for each loss."""
    statistics: Mapping[str, Any] = {}


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C: the stage stopped between two steps and resumes there next time."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """The surroundings of a stage's work."""

    directory: StageDirectory
    train: Callable[[Recipe], Run]

    def made(self, rows: Iterable[Mapping[str, Any]], statistics: Mapping[str, Any], sampled_tokens: int = 0) -> Made:
        """Write the rows of a data stage, and return its result."""
        return Made(self.directory.data, write_rows(self.directory.data, rows), sampled_tokens, 0, statistics)


class ComputeConfig(ModelConfig):
    """Settings of computation, for stages whose other keys name the models."""

    path: Annotated[str, ReadIf(lambda model: False, "a key that names one model")] = Field(SHIPPED, exclude=True)
    """Not read: other keys of the stage name its models."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stage's place in its pipeline."""

    name: str
    table: Mapping[str, Any]
    recipe: PipelineRecipe
    folder: Path | None = None

    @property
    def where(self) -> str:
        return f"stages.{self.name}"

    def parsed(self, model: "type[ConfigT]") -> "ConfigT":
        shared = self.recipe.model_dump(mode="json")
        seed = self.recipe.pipeline.seed
        sections: Shared = {
            ModelConfig: shared["model"],
            SamplingConfig: shared["sampling"],
            EngineConfig: shared["engine"],
            RunConfig: {"directory": "", "seed": seed},
        }
        below: dict[str, Any] = {"seed": seed} if "seed" in model.model_fields else {}
        if "sinks" in model.model_fields:
            below["sinks"] = {name: sink.model_dump(mode="json") for name, sink in self.recipe.sinks.items()}
        table = merged(below, with_tasks(self.table, shared["tasks"], self.where))
        whole, bases = completed(model, table, sections, self.folder), {BASE: self.recipe.model.path}
        return parse(model, whole, source=self.where, folder=self.folder, artifacts=bases)


ConfigT = TypeVar("ConfigT", bound=Section)


@dataclass(frozen=True)
class Stage(ABC, Generic[ConfigT]):
    """One stage of a pipeline, checked and ready to run."""

    Config: ClassVar[type[Section]]

    name: str
    kind: str
    config: ConfigT
    """Everything that the result depends on; outputs of other stages are in it as `{name}`."""

    @property
    @abstractmethod
    def makes(self) -> Makes:
        """Kind of the result."""

    @property
    def code(self) -> str:
        """Version of the code that the result depends on: of the stage's module and the parts that it names."""
        return code_of(type(self).__module__, [self.kind, self.algorithm or "", self.settings])

    @abstractmethod
    def run(self, config: ConfigT, work: Workplace) -> Made:
        """Do the work, or resume it.

        `config`: the settings, with the path of a stage's output in place of every `{name}`.

        Raises:
            Interrupted: it was stopped before its end.
        """

    @classmethod
    def read(cls, kind: str, source: Source) -> Self:
        config: Any = source.parsed(cls.Config)
        return cls(source.name, kind, config)

    @property
    def algorithm(self) -> str | None:
        return None

    @property
    def inputs(self) -> tuple[str, ...]:
        names = (stage_of(reference.value) for reference in named(self.config))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def files(self) -> tuple[str, ...]:
        code = [str(location.file) for name in (self.kind, self.algorithm or "") if (location := Place.of(name))]
        return tuple(dict.fromkeys([*files(self.config), *code]))

    @property
    def settings(self) -> dict[str, Any]:
        return self.config.model_dump(mode="json")
