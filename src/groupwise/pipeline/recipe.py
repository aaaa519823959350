"""The recipe of a pipeline: what all stages share, and a table for every stage in the order in which they run.

Inside a stage's table, where a key names a model, a reward model or data, `{name}` stands for the output of the stage
`name` and `{base}` for the model that everything starts from; `task = "name"` (or a list of names) stands for tasks of
the recipe. So a stage's inputs are the names that it mentions.
"""

import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from groupwise.config import FOLDER, Section, merged
from groupwise.config.kinds import Allowed, Choices, KindSection
from groupwise.config.places import beside
from groupwise.config.schema import PlaceRef, chosen_section
from groupwise.errors import ConfigError
from groupwise.models.config import ModelConfig
from groupwise.rollout.engine import AnyEngine, EngineConfig
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tools import ToolSections
from groupwise.runs.sinks import SinkSections
from groupwise.tasks import TaskOptions

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
BASE = "base"


class PipelineConfig(Section):
    """Directory and seed of a pipeline."""

    directory: PlaceRef
    """Pipeline directory; the same command resumes an interrupted pipeline in it."""
    seed: int = 0
    """Seed of every stage."""


MEASURES = Choices("measure", {}, allowed=Allowed(callable, "a function"))


class MeasureConfig(Section):
    """Evaluation, on the test split, of the base model and after every stage that makes a model."""

    num_problems: int = Field(200, ge=1)
    """Problems of each task (the first of the split)."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem; pass@k is measured up to this k."""
    sampling: SamplingConfig | None = None
    """Sampling; None: that of the pipeline. DeepSeek-R1 (arXiv:2501.12948, section 3) was
    measured at temperature 0.6 and top-p 0.95."""
    tools: dict[Name, ToolSections] = Field(default_factory=dict)
    """By task, the tools that its completions may use (`[measure.tools.TASK.NAME]`); a task that is not named has those
    of `sampling`."""
    measures: dict[Name, str] = Field(default_factory=dict)
    """Measures of your own by name, `file.py:function`: a number from 0 to 1 of a completion (its `text`, `reference`,
    `language` and all else that is recorded), or None where it is not measured."""

    @field_validator("measures")
    @classmethod
    def _found(cls, kinds: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        found = {name: beside(kind, (info.context or {}).get(FOLDER)) for name, kind in kinds.items()}
        for kind in found.values():
            MEASURES.find(kind)
        return found


class PipelineRecipe(Section):
    """A whole pipeline."""

    pipeline: PipelineConfig
    """Directory and seed."""
    model: ModelConfig = ModelConfig()
    """The base model, and how models compute; stages start from it unless they name another."""
    tasks: dict[Name, TaskOptions] = Field(min_length=1)
    """Tasks, by names that you choose and to which stages refer. All are measured after every stage."""
    sampling: SamplingConfig = SamplingConfig()
    """Sampling, unless a stage or the measurement sets something else."""
    engine: AnyEngine = EngineConfig()
    """The engine that samples, in every stage without its own engine and in the measurement."""
    measure: MeasureConfig = MeasureConfig()
    """Evaluation after every stage."""
    sinks: SinkSections = Field(default_factory=dict, exclude=True)
    """Services that also receive the metrics of every stage that trains; a stage may add others, or replace one by its
    name."""
    stages: dict[Name, dict[str, Any]] = Field(min_length=1)
    """The stages: `kind`, and the keys of that kind."""

    @model_validator(mode="after")
    def _tools_of_tasks(self) -> Self:
        if unknown := [name for name in self.measure.tools if name not in self.tasks]:
            raise ValueError(
                f"measure.tools.{unknown[0]}: there is no such task in [tasks]; allowed are {', '.join(self.tasks)}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _measured_as_sampled(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and isinstance(sampling := values.get("sampling"), Mapping):
            measure = values.get("measure")
            if isinstance(measure, Mapping) and isinstance(measure.get("sampling"), Mapping):
                return merged({"measure": {"sampling": sampling}}, values)
        return values


Shared = Mapping[type[Section], Mapping[str, Any]]
"""Sections that a pipeline has too, by class: values missing in a stage's table are the pipeline's."""


def completed(
    model: type[BaseModel], table: Mapping[str, Any], shared: Shared, folder: Path | None = None
) -> dict[str, Any]:
    """Return the table of a section, with missing values of shared sections at any depth filled in."""
    filled = dict(table)
    for name, field in model.model_fields.items():
        value = table.get(name)
        if name not in table and field.get_default(call_default_factory=True) is None:
            continue  # an absent optional section
        if typing.get_origin(field.annotation) is dict and isinstance(value, Mapping):
            inner = typing.get_args(field.annotation)[1]
            filled[name] = {key: _completed(inner, (), item, shared, folder) for key, item in value.items()}
        elif (whole := _completed(field.annotation, field.metadata, value, shared, folder)) is not None:
            filled[name] = whole
    return filled


def _completed(annotation: Any, metadata: Sequence[Any], value: Any, shared: Shared, folder: Path | None) -> Any:
    section = chosen_section(annotation, metadata, value, folder)
    if section is None or not isinstance(value, Mapping | None):
        return value
    for kind, below in shared.items():
        if issubclass(section, kind) and issubclass(kind, KindSection):
            return value or dict(below)  # keys of another kind would mean nothing
        if issubclass(section, kind):
            read = {key: default for key, default in below.items() if not section.model_fields[key].exclude}
            return merged(read, value or {})
    return completed(section, value or {}, shared, folder) or value


def with_tasks(value: Any, tasks: Mapping[str, Mapping[str, Any]], where: str) -> Any:
    """Replace every `task = "name"` by that task, and every list of names by a mixture of them."""
    if not isinstance(value, Mapping):
        return value
    replaced = {}
    for key, inner in value.items():
        place = f"{where}.{key}"
        if key != "task" or isinstance(inner, Mapping):
            replaced[key] = inner if key == "task" else with_tasks(inner, tasks, place)
            continue
        names = [inner] if isinstance(inner, str) else inner
        if not isinstance(names, list) or not names:
            raise ConfigError(f"{place} = {inner!r}; allowed are a name in [tasks], a list of such names, and a table")
        if unknown := [name for name in names if name not in tasks]:
            raise ConfigError(f"{place}: there is no task {unknown[0]!r} in [tasks]; known are {', '.join(tasks)}")
        replaced[key] = tasks[names[0]] if len(names) == 1 else mixture({name: tasks[name] for name in names}, place)
    return replaced


def mixture(tasks: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Any]:
    """Return the configuration of a mixture of tasks; a mixture among them contributes its parts with their weights."""
    (first, task), *others = tasks.items()
    for name, other in others:
        if other["template"] != task["template"]:
            raise ConfigError(
                f"{where}: tasks.{first} and tasks.{name} have different templates, and all problems of a stage are "
                "rendered with one: set template of both to the same"
            )
    parts: dict[str, Any] = {}
    for name, options in tasks.items():
        if options["kind"] == "mixture" and options.get("verifier"):
            raise ConfigError(
                f"{where}: tasks.{name} is a mixture with a verifier of its own, and only its parts are taken: set the "
                "verifier of each part instead"
            )
        new = options["parts"] if options["kind"] == "mixture" else {name: {"task": options}}
        if both := sorted(parts.keys() & new.keys()):
            raise ConfigError(f"{where}: two of these tasks bring a part named {both[0]!r}; give them different names")
        parts |= new
    return {"kind": "mixture", "template": task["template"], "parts": parts}
