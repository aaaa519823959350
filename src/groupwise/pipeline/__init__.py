"""Pipelines: stages of training and data, run in order from one recipe; resumable, with recorded lineage.

To add a kind of stage: a file with its settings and its class, and a line in `STAGES`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.config import load
from groupwise.errors import ConfigError
from groupwise.pipeline.base import Stage
from groupwise.pipeline.cold_start import ColdStart
from groupwise.pipeline.plan import Action, Planned, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe, wanted
from groupwise.pipeline.rejection_sampling import RejectionSampling
from groupwise.pipeline.runner import Display, run_pipeline
from groupwise.pipeline.train import Train

STAGES: Mapping[str, type[Stage]] = {stage.kind: stage for stage in (Train, ColdStart, RejectionSampling)}
"""Class of each kind of stage."""


def load_pipeline(path: Path, overrides: Sequence[str] = ()) -> tuple[PipelineRecipe, list[Stage]]:
    """Read a pipeline's recipe, apply `a.b=c` overrides and check every stage before the first one runs.

    Raises:
        ConfigError: the file, a key, a value, or a reference to a stage cannot be used.
    """
    recipe = load(PipelineRecipe, path, overrides)
    stages: list[Stage] = []
    for name, table in recipe.stages.items():
        kind = table.get("kind", "train")
        if not isinstance(kind, str) or kind not in STAGES:
            raise ConfigError(f"stages.{name}.kind = {kind!r}; allowed are {', '.join(STAGES)}")
        stage = STAGES[kind](name, recipe, {key: value for key, value in table.items() if key != "kind"})
        _refuse_unknown(stage, {one.name: one for one in stages})
        stages.append(stage)
    return recipe, stages


def _refuse_unknown(stage: Stage, before: Mapping[str, Stage]) -> None:
    if stage.name == BASE:
        raise ConfigError(f"stages.{BASE}: this name means the base model; any other is allowed")
    if unknown := [name for name in stage.inputs if name not in before]:
        raise ConfigError(
            f"stages.{stage.name} reads {{{unknown[0]}}}, but no stage of that name comes before it; before it come "
            f"{', '.join(before) or 'none'}"
        )
    for name, makes in wanted(stage.settings):
        if before[name].makes != makes:
            raise ConfigError(
                f"stages.{stage.name} reads {{{name}}} as a {makes.replace('_', ' ')}, but that stage makes a "
                f"{before[name].makes.replace('_', ' ')}"
            )


__all__ = [
    "STAGES", "Action", "Display", "PipelineRecipe", "Planned", "Stage", "load_pipeline", "plan", "run_pipeline",
]  # fmt: skip
