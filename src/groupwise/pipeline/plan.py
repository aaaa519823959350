"""What a call would do with every stage, and why: decided from the recipe and the files alone, before anything runs."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import ConfigError
from groupwise.models.policy import resolve
from groupwise.pipeline.base import Stage
from groupwise.pipeline.directory import PipelineDirectory, StageDirectory, content_hash
from groupwise.pipeline.fingerprint import COMPUTES, MEASURES, code_version, fingerprint
from groupwise.pipeline.recipe import PipelineRecipe


class Action(StrEnum):
    """What happens to a stage."""

    RUN = "run"
    RESUME = "resume"
    MEASURE = "measure"
    """It is finished, but its evaluation is not."""
    SKIP = "skip"
    LEAVE = "leave"
    """`--only` another."""


class Planned(NamedTuple):
    """A stage and what happens to it."""

    stage: Stage
    fingerprint: str
    inputs: dict[str, str]
    """Fingerprint of every stage, and hash of every file, that it reads."""
    action: Action
    why: str


def measurement(recipe: PipelineRecipe) -> str:
    """Fingerprint of how models are evaluated."""
    chosen = recipe.model_dump(mode="json", include={"model", "tasks", "sampling", "evaluation"})
    chosen["model"].pop("path")
    seed = recipe.pipeline.seed
    return fingerprint({**chosen, "seed": seed}, {}, code_version(COMPUTES + MEASURES))


def plan(
    recipe: PipelineRecipe,
    stages: Sequence[Stage],
    only: str | None = None,
    start: str | None = None,
) -> list[Planned]:
    """What happens to every stage, in order.

    `only`: nothing but this stage is touched; what it reads must be there. `start`: this stage and what stands on it are
    run anew, finished or not.

    Raises:
        ConfigError: there is no stage of that name, or `only` wants what has not been made.
    """
    known = [stage.name for stage in stages]
    for option, name in (("--only", only), ("--from", start)):
        if name is not None and name not in known:
            raise ConfigError(f"{option} {name}: there is no such stage; the stages are {', '.join(known)}")
    directory = PipelineDirectory(Path(recipe.pipeline.directory))
    measured, found = measurement(recipe), dict[str, Planned]()
    for stage in stages:
        inputs = {name: found[name].fingerprint for name in stage.inputs} | _files(stage.settings)
        mark = fingerprint(stage.settings, inputs, code_version())
        anew = [name for name in stage.inputs if found[name].action in (Action.RUN, Action.RESUME)]
        action, why = _action(stage, directory.stage(stage.name), mark, measured)
        if stage.name == start or (start is not None and anew and action is not Action.RESUME):
            action, why = Action.RUN, "asked for by --from" if stage.name == start else f"{anew[0]} is made anew"
        if only is not None and stage.name != only:
            action, why = Action.LEAVE, f"only {only} is asked for"
        found[stage.name] = Planned(stage, mark, inputs, action, why)
    if only is not None:
        _refuse_missing(found, only, directory)
    return list(found.values())


def _action(stage: Stage, place: StageDirectory, mark: str, measured: str) -> tuple[Action, str]:
    facts, begun = place.facts, place.begun
    if facts and facts["fingerprint"] == mark and (broken := _broken(place, facts)):
        return Action.RUN, broken
    if facts and facts["fingerprint"] == mark:
        if stage.makes == "model" and facts.get("evaluation_fingerprint") != measured:
            return Action.MEASURE, "finished, but not measured in this way"
        return Action.SKIP, "finished with the same settings, inputs and code"
    if begun and begun["fingerprint"] == mark:
        return Action.RESUME, "interrupted"
    return (Action.RUN, _difference(begun, stage)) if begun else (Action.RUN, "not run yet")


def _broken(place: StageDirectory, facts: Mapping[str, Any]) -> str | None:
    output = place.path / facts["output"]
    if not output.exists():
        return f"what it made is not there any more: {facts['output']}"
    if content_hash(output) != facts["output_hash"]:
        return f"what it made was changed on disk: {facts['output']}"
    return None


def _difference(begun: Mapping[str, Any], stage: Stage) -> str:
    """Why work that was begun cannot be used: the first difference in words."""
    before, now = _flat(begun["settings"]), _flat(stage.settings)
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"{changed[0]} was {before.get(changed[0])!r} and is {now.get(changed[0])!r}{more}"
    return "its inputs changed" if begun["code"] == code_version() else "the code changed"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    return {
        key: leaf
        for name, one in value.items()
        for key, leaf in _flat(one, f"{prefix}.{name}" if prefix else str(name)).items()
    }


def _files(settings: Mapping[str, Any]) -> dict[str, str]:
    """Hash of every model directory and data file outside the pipeline that settings name under `path`."""
    names = [value for key, value in _flat(settings).items() if key.rpartition(".")[2] == "path"]
    paths = {name: Path(resolve(name)) for name in names if isinstance(name, str)}
    return {name: content_hash(path) for name, path in paths.items() if name and path.exists()}


def _refuse_missing(found: Mapping[str, Planned], only: str, directory: PipelineDirectory) -> None:
    for name in found[only].stage.inputs:
        facts = directory.stage(name).facts
        if not facts or facts["fingerprint"] != found[name].fingerprint:
            raise ConfigError(
                f"--only {only} reads what the stage {name} makes, which is not there (or was made with other "
                f"settings): run without --only, or --only {name} first"
            )
