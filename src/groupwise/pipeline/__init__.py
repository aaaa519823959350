"""Pipelines: stages of training and data, run in order from one recipe; resumable, with recorded lineage.

To add a kind of stage: a file with its class, and a line in `STAGES`. Your own stage needs no line:
`kind = "my_stage.py:MyStage"`.
"""

from collections.abc import Sequence
from typing import Any

from groupwise import config
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.config.schema import named, stage_of
from groupwise.errors import ConfigError
from groupwise.pipeline.base import Source, Stage
from groupwise.pipeline.plan import Action, Planned, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe
from groupwise.pipeline.runner import Display, run_pipeline

AnyStage = Stage[Any]
STAGES = Choices(
    "stage",
    {
        "train": "groupwise.pipeline.train:Train",
        "cold_start": "groupwise.pipeline.cold_start:ColdStart",
        "rejection_sampling": "groupwise.pipeline.rejection_sampling:RejectionSampling",
        "tool_integrated": "groupwise.pipeline.tool_integrated:ToolIntegrated",
        "step_labels": "groupwise.pipeline.step_labels:StepLabels",
        "recall": "groupwise.pipeline.recall:RecallStage",
        "step_evaluation": "groupwise.pipeline.step_evaluation:StepEvaluation",
        "budget": "groupwise.pipeline.budget:BudgetStage",
    },
    allowed=Allowed(lambda part: isinstance(part, type) and issubclass(part, Stage), "a class that is a Stage"),
)
"""Class of each kind of stage."""


def load_pipeline(source: config.Source, changes: config.Changes = ()) -> tuple[PipelineRecipe, list[AnyStage]]:
    """Read a pipeline's recipe, apply changes and check every stage before the first one runs.

    >>> run_pipeline(*load_pipeline("recipes/r1.toml", {"pipeline.directory": "runs/mine"}))  # doctest: +SKIP
    True

    Args:
        source: a TOML file with [stages], or its tables as nested dictionaries.
        changes: values by dotted key, or `a.b=c` texts as after `--set`.

    Returns:
        The recipe and its stages in order: what `run_pipeline` and `plan` take.

    Raises:
        ConfigError: the file, a key, a value, or a reference to a stage cannot be used.
    """
    recipe = config.load(PipelineRecipe, source, changes)
    folder = config.named(source)[1]
    stages: list[AnyStage] = []
    for name, table in recipe.stages.items():
        own = {key: value for key, value in table.items() if key != "kind"}
        stage = _read(table.get("kind", "train"), Source(name, own, recipe, folder))
        _check_references(stage, stages, tuple(recipe.stages))
        stages.append(stage)
    return recipe, stages


def _read(kind: object, source: Source) -> AnyStage:
    if not isinstance(kind, str):
        raise ConfigError(f"{source.where}.kind = {kind!r}; allowed are {', '.join(STAGES.table)}, file.py:name")
    try:
        kind = beside(kind, source.folder)
        stage_class: type[AnyStage] = STAGES.find(kind)
    except ConfigError as error:
        raise ConfigError(f"{source.where}.kind: {error}") from None
    return stage_class.read(kind, source)


def _check_references(stage: AnyStage, before: Sequence[AnyStage], names: Sequence[str]) -> None:
    """Every stage that is read comes before its reader and makes what that reader needs."""
    if stage.name == BASE:
        raise ConfigError(f"stages.{BASE}: this name means the base model; any other is allowed")
    makes = {earlier.name: earlier.makes for earlier in before}
    for reference in named(stage.config):
        name = stage_of(reference.value)
        where = f"stages.{stage.name}.{reference.key} = {reference.value!r}"
        if name is None:
            continue
        if name not in makes:
            fault = f"the stage {name} does not come before it" if name in names else f"there is no stage {name!r}"
            raise ConfigError(f"{where}: {fault}; before it come {', '.join((BASE, *makes))}")
        if makes[name] != reference.makes:
            needed, actual = (what.replace("_", " ") for what in (reference.makes, makes[name]))
            raise ConfigError(f"{where}: {needed} is read here, but the stage {name} makes {actual}")


__all__ = [
    "STAGES", "Action", "AnyStage", "Display", "PipelineRecipe", "Planned", "Stage", "load_pipeline", "plan",
    "run_pipeline",
]  # fmt: skip
