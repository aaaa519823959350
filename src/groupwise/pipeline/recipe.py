"""The recipe of a pipeline: what all stages share, and a table for every stage in the order in which they run.

Inside a stage's table, where a path is wanted, `{name}` stands for what the stage `name` made and `{base}` for the
model that everything starts from; `task = "name"` (or a list of names) stands for tasks of the recipe. So a stage's
inputs are the names that it mentions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.models.config import ModelConfig
from groupwise.rollout.sampling import SamplingConfig
from groupwise.tasks import TaskOptions

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
BASE = "base"
"""Name of the model that everything starts from; no stage may have it."""
PATHS = ("path", "test_path", "include")
"""Keys whose values are paths. Elsewhere braces are text, as in a template's `{question}`."""
_REFERENCE = re.compile(r"\{([^{}]*)\}")


class PipelineConfig(Section):
    """Where a pipeline is kept and what makes it repeatable."""

    directory: str
    """Pipeline directory; the same command goes on with an interrupted pipeline in it."""
    seed: int = 0
    """Seed of every stage."""


class EvaluationConfig(Section):
    """What is measured after every stage that makes a model, and of the base model, on the test split."""

    num_problems: int = Field(200, ge=1)
    """Problems of each task (the first of the split)."""
    num_samples: int = Field(8, ge=1)
    """Completions per problem; pass@k is measured up to this k."""
    sampling: SamplingConfig | None = None
    """How completions are drawn; None: as everywhere in the pipeline. DeepSeek-R1 (arXiv:2501.12948, section 3) was
    measured at temperature 0.6 and top-p 0.95."""
    hidden_rule: bool = False
    """Measure helpfulness and harmlessness by the rule that made the generated preference data. Only where that rule
    is the truth: in the embedded tasks."""


class PipelineRecipe(Section):
    """A whole pipeline."""

    pipeline: PipelineConfig
    """Where, which seed."""
    model: ModelConfig = ModelConfig()
    """The base model, and how models compute; stages that say nothing else start from it."""
    tasks: dict[Name, TaskOptions] = Field(min_length=1)
    """Tasks by a name of your own, to which stages refer. All are evaluated after every stage."""
    sampling: SamplingConfig = SamplingConfig()
    """How completions are drawn, where a stage or the evaluation says nothing else."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """What is measured after every stage."""
    stages: dict[Name, dict[str, Any]] = Field(min_length=1)
    """The stages: `kind`, and what that kind reads."""

    @model_validator(mode="before")
    @classmethod
    def _evaluated_as_sampled(cls, values: Any) -> Any:
        """What `evaluation.sampling` leaves out is that of `sampling`."""
        if isinstance(values, Mapping) and isinstance(sampling := values.get("sampling"), Mapping):
            return {**values, "evaluation": with_sampling(values.get("evaluation", {}), sampling)}
        return values


def paths(value: Any, key: str = "") -> Iterator[str]:
    """Every path in nested settings, in order."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from paths(one, name)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from paths(one, key)
    elif isinstance(value, str) and key in PATHS:
        yield value


def references(value: Any) -> Iterator[str]:
    """Names of the stages that settings mention as `{name}`, each as often as they do."""
    return (found[1] for path in paths(value) if (found := _REFERENCE.fullmatch(path)))


def wanted(value: Any, trail: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """(name of a stage, what it must make) for every `{name}` in settings, by the keys that it stands under."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from wanted(one, (*trail, key))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from wanted(one, trail)
    elif isinstance(value, str) and trail[-1] in PATHS and (found := _REFERENCE.fullmatch(value)):
        is_data = not {"data", "file", "include", "test_path"}.isdisjoint(trail)
        yield found[1], "data" if is_data else "reward_model" if "reward_models" in trail else "model"


def display_name(value: str) -> str:
    """What a path of a stage's settings means: the name of a stage, or the path itself."""
    found = _REFERENCE.fullmatch(value)
    return found[1] if found else value


def resolved(value: Any, outputs: Mapping[str, str], key: str = "") -> Any:
    """Settings with every `{name}` replaced by the path of what that stage made; names without a path stay."""
    if isinstance(value, Mapping):
        return {name: resolved(one, outputs, name) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [resolved(one, outputs, key) for one in value]
    is_path = isinstance(value, str) and key in PATHS
    return outputs.get(display_name(value), value) if is_path and _REFERENCE.fullmatch(value) else value


def with_tasks(value: Any, tasks: Mapping[str, Mapping[str, Any]], where: str) -> Any:
    """The value with every `task = "name"` replaced by that task, and every list of names by a mixture of them.

    Raises:
        ConfigError: there is no such task; says which there are.
    """
    if not isinstance(value, Mapping):
        return value
    return {
        key: _task(one, tasks, f"{where}.{key}") if key == "task" else with_tasks(one, tasks, f"{where}.{key}")
        for key, one in value.items()
    }


def _task(value: Any, tasks: Mapping[str, Mapping[str, Any]], where: str) -> Any:
    if isinstance(value, Mapping):
        return value
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{where} = {value!r}; allowed are a name in [tasks], a list of such names, and a table")
    if unknown := [name for name in names if name not in tasks]:
        raise ConfigError(f"{where}: there is no task {unknown[0]!r} in [tasks]; known are {', '.join(tasks)}")
    parts = [tasks[name] for name in names]
    return parts[0] if len(parts) == 1 else mixture(dict(zip(names, parts, strict=True)), where)


def mixture(tasks: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Any]:
    """The configuration of a mixture of tasks; one that is a mixture itself brings its parts with their weights.

    Raises:
        ConfigError: the tasks have different templates, or parts of the same name.
    """
    (first, task), *others = tasks.items()
    for name, other in others:
        if other["template"] != task["template"]:
            raise ConfigError(
                f"{where}: tasks.{first} and tasks.{name} have different templates, and all problems of a stage are "
                "rendered with one: set template of both to the same"
            )
    parts: dict[str, Any] = {}
    for name, one in tasks.items():
        new = one["parts"] if one["kind"] == "mixture" else {name: {"task": one}}
        if both := sorted(parts.keys() & new.keys()):
            raise ConfigError(f"{where}: two of these tasks bring a part named {both[0]!r}; give them different names")
        parts |= new
    return {"kind": "mixture", "template": task["template"], "parts": parts}


def with_sampling(value: Any, sampling: Mapping[str, Any]) -> Any:
    """The value with every table `sampling`, however deep, completed by the pipeline's."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: merged(sampling, one) if key == "sampling" and isinstance(one, Mapping) else with_sampling(one, sampling)
        for key, one in value.items()
    }


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second over the first."""
    found = dict(below)
    for key, value in above.items():
        mine = found.get(key)
        found[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return found
