"""The plan of a call: the action for every stage with its reason, from the recipe and the files alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.config.places import is_there
from groupwise.config.schema import files, resolve
from groupwise.errors import CheckpointError, ConfigError
from groupwise.pipeline import evaluation
from groupwise.pipeline.base import Stage
from groupwise.pipeline.directory import PipelineDirectory, StageDirectory, content_hash
from groupwise.pipeline.fingerprint import code_of, fingerprint
from groupwise.pipeline.recipe import PipelineRecipe
from groupwise.runs.directory import flattened, without_places


class Action(StrEnum):
    """Action on a stage."""

    RUN = "run"
    RESUME = "resume"
    MEASURE = "measure"
    SKIP = "skip"
    LEAVE = "leave"


class Planned(NamedTuple):
    """A stage with its action."""

    stage: Stage[Any]
    fingerprint: str
    inputs: dict[str, str]
    """Fingerprint of every stage, and hash of every file, that it reads."""
    action: Action
    why: str


def measurement(recipe: PipelineRecipe) -> str:
    """Return the fingerprint of how models are evaluated."""
    chosen = without_places(recipe.model_dump(mode="json", include={"model", "tasks", "sampling", "engine", "measure"}))
    del chosen["model"]["path"]
    seed = recipe.pipeline.seed
    read = (path for section in (*recipe.tasks.values(), recipe.engine) for path in files(section))
    return fingerprint({**chosen, "seed": seed}, _hashes(read), code_of(evaluation.__name__, chosen))


def is_measured(stage_dir: StageDirectory, facts: Mapping[str, Any], measured: str) -> bool:
    """Return True if a stage's output was evaluated in this way and the completions exist."""
    return facts.get("evaluation_fingerprint") == measured and stage_dir.evaluation.exists()


def plan(
    recipe: PipelineRecipe, stages: Sequence[Stage[Any]], only: str | None = None, start: str | None = None
) -> list[Planned]:
    """Return the action for every stage, in order.

    `only`: nothing but this stage is touched; its inputs must exist. `start`: this stage and all that depends on it are
    run again, finished or not.

    Raises:
        ConfigError: there is no stage of that name, or `only` needs the output of a stage that has not run.
        CheckpointError: a file that a stage read is missing, so it could not be made again.
    """
    names = [stage.name for stage in stages]
    for name in (only, start):
        if name is not None and name not in names:
            raise ConfigError(f"there is no stage {name}; the stages are {', '.join(names)}")
    directory = PipelineDirectory(Path(recipe.pipeline.directory))
    measured, hashed = measurement(recipe), cache(content_hash)
    planned, again = dict[str, Planned](), dict[str, str]()
    for stage in stages:
        inputs = {name: planned[name].fingerprint for name in stage.inputs} | _hashes(stage.files, hashed)
        mark = fingerprint({"kind": stage.kind, **without_places(stage.settings)}, inputs, stage.code)
        if stage.name == start:
            again[stage.name] = "requested again"
        elif remade := [name for name in stage.inputs if name in again]:
            again[stage.name] = f"{remade[0]} is made again"
        stage_dir = directory.stage(stage.name)
        if gone := [
            name for name in (stage_dir.begun or {}).get("inputs", {}) if name in stage.files and name not in inputs
        ]:
            raise CheckpointError(
                f"the stage {stage.name} read {gone[0]}, which is missing now: put it back; nothing was deleted"
            )
        action, why = _action(stage, stage_dir, mark, inputs, measured)
        if action is not Action.RUN and (changed := other_input(stage_dir, stage, directory)):
            action, why = Action.RUN, f"{changed} made something else"
        if stage.name in again:
            action, why = Action.RUN, again[stage.name]
        planned[stage.name] = Planned(stage, mark, inputs, action, why)
    if only is None:
        return list(planned.values())
    for name in planned[only].stage.inputs:
        if planned[name].action not in (Action.SKIP, Action.MEASURE):
            raise ConfigError(
                f"the stage {only} reads the output of the stage {name}, which is missing ({planned[name].why}): run "
                f"all stages, or {name} first"
            )
    why = f"only {only} is requested"
    return [entry if name == only else entry._replace(action=Action.LEAVE, why=why) for name, entry in planned.items()]


def _action(
    stage: Stage[Any], stage_dir: StageDirectory, mark: str, inputs: Mapping[str, str], measured: str
) -> tuple[Action, str]:
    facts, begun = stage_dir.facts, stage_dir.begun
    if facts and facts["fingerprint"] == mark:
        output = stage_dir.path / facts["output"]
        if not output.exists():
            return Action.RUN, f"its output is missing: {facts['output']}"
        if content_hash(output) != facts["output_hash"]:
            return Action.RUN, f"its output was changed on disk: {facts['output']}"
        if stage.makes == "model" and not is_measured(stage_dir, facts, measured):
            return Action.MEASURE, "finished, but not measured in this way"
        return Action.SKIP, "finished with the same settings, inputs and code"
    if begun and begun["fingerprint"] == mark:
        return Action.RESUME, "interrupted"
    if not begun:
        return Action.RUN, "not run yet"
    before, now = (flattened(without_places(settings)) for settings in (begun["settings"], stage.settings))
    if changed := [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return Action.RUN, f"{changed[0]} was {before.get(changed[0])!r} and is {now.get(changed[0])!r}{more}"
    others = [name for name, digest in inputs.items() if begun.get("inputs", {}).get(name) != digest]
    return Action.RUN, f"{others[0]} changed" if others and begun["code"] == stage.code else "the code changed"


def other_input(stage_dir: StageDirectory, stage: Stage[Any], directory: PipelineDirectory) -> str | None:
    """Return the first stage whose output differs from the one that this stage read when it started."""
    read = (stage_dir.begun or {}).get("read", {})
    now = {name: directory.stage(name).output_hash for name in stage.inputs}
    return next((name for name, digest in now.items() if digest is not None and read.get(name) != digest), None)


def _hashes(paths: Iterable[str], hashed: Callable[[Path], str] = content_hash) -> dict[str, str]:
    resolved = {name: Path(resolve(name)) for name in paths}
    return {name: hashed(path) for name, path in resolved.items() if is_there(path)}
