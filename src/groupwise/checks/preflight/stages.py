"""The preflight of a pipeline: each stage as far as it can be judged before the stages in front of it have run.

A stage whose model an earlier stage makes is checked without it: sizes are those of the base model, and checks that
need the model are not done. Stages that are no reinforcement learning have checks of their settings and files.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel

from groupwise.checks import Advice
from groupwise.checks.preflight import CHECKS, Cost, Preflight, PreflightOptions, Severity, preflight
from groupwise.checks.preflight.bench import finding
from groupwise.checks.preflight.machine import schedule
from groupwise.config.schema import SHIPPED, located, named, resolve, stage_of
from groupwise.trainers.base import Recipe
from groupwise.trainers.rl_recipe import RlRecipe

ALWAYS: tuple[Cost, ...] = ("free", "verifier")  # costs of the checks of a stage whose model does not exist yet
EVERYTHING: tuple[Cost, ...] = ("free", "verifier", "model", "step")


class Staged(Protocol):
    """A stage of a pipeline."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def config(self) -> BaseModel: ...


@dataclass(frozen=True, slots=True)
class StageChecked:
    """Result of one stage."""

    name: str
    does: str  # its kind, or the algorithm that it trains with
    found: Preflight


def preflight_stages(
    stages: Iterable[Staged],
    directory: Path,
    base: str = SHIPPED,
    options: PreflightOptions = PreflightOptions(),  # noqa: B008  frozen
    leave_out: Collection[str] = (),
) -> list[StageChecked]:
    """Check the stages of a pipeline, in order.

    `directory` is the pipeline's, for the disk that is looked at; `base` the model that everything starts from: sizes
    of models that stages will make are taken for its.
    """
    every = list(stages)
    stand_ins = {stage.name: base for stage in every}
    heavy = [name for name, check in CHECKS.items() if check.cost not in ALWAYS]
    results = []
    for stage in every:
        config = stage.config
        does = config.algorithm if isinstance(config, Recipe) else stage.kind.replace("_", " ")
        missing = tuple(
            finding(
                Severity.CRITICAL, f"{key} = {value!r} is not there", "The stage ends with an error when it begins.",
                Advice(key, "a path that is there, or `{name}` of a stage that makes it"),
            )
            for key, value, makes in named(config)
            if value and not stage_of(value) and value != SHIPPED and not Path(resolve(value)).exists()
            # a name of the hub is left to the stage
            if makes == "data" or value.startswith((".", "/", "~")) or value.count("/") != 1
        )  # fmt: skip
        if not isinstance(config, RlRecipe):
            rates = list(schedule(config)) if isinstance(config, Recipe) else []
            results.append(StageChecked(stage.name, does, Preflight(findings=(*missing, *rates), figures={})))
            continue
        makes = {reference.key: reference.makes for reference in named(config)}
        made = {reference.key: name for reference in named(config) if (name := stage_of(reference.value)) is not None}
        later = [f"{key} is made by the stage {name}" for key, name in made.items()]
        where = config.run.model_copy(update={"directory": str(directory / "stages" / stage.name / "run")})
        recipe = located(config, stand_ins).model_copy(update={"run": where})
        if data := [text for key, text in zip(made, later, strict=True) if makes[key] == "data"]:
            result = Preflight(findings=missing, figures={}, not_done=dict.fromkeys(CHECKS, data[0]))
        else:
            result = preflight(recipe, options, leave_out, ALWAYS if made else EVERYTHING)
            ranked = sorted((*missing, *result.findings), key=lambda finding: -finding.severity.rank)
            not_done = {**(dict.fromkeys(heavy, later[0]) if later else {}), **result.not_done}
            result = replace(result, findings=tuple(ranked), not_done=not_done)
        results.append(StageChecked(stage.name, does, result))
    return results


def verdict(found: Iterable[StageChecked]) -> str:
    """Return the verdict of the worst stage."""
    verdicts = {stage.found.verdict for stage in found}
    return next((level for level in ("NO-GO", "GO WITH WARNINGS", "GO") if level in verdicts), "GO")
