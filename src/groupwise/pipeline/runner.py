"""Runs a pipeline's stages in order; killed at any moment, the same call goes on inside the stage it was in."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from groupwise.config import dump_toml
from groupwise.errors import CheckpointError
from groupwise.models.policy import resolve
from groupwise.pipeline.base import Interrupted, Made, Stage, Workplace
from groupwise.pipeline.directory import PipelineDirectory, StageDirectory
from groupwise.pipeline.evaluation import evaluate_model
from groupwise.pipeline.fingerprint import code_version
from groupwise.pipeline.plan import Action, Planned, measurement, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import environment
from groupwise.trainers import Recipe
from groupwise.training.session import Session


@dataclass(frozen=True, slots=True)
class Display:
    """Who shows what happens."""

    train: Callable[[Recipe], Session]
    """Runs a trainer's recipe with its own display."""
    stage: Callable[[Planned, int, int], None] = field(default=lambda planned, number, total: None)
    """Told before every stage: (what happens to it, its number from 1, number of stages)."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Told how far a long piece of work is."""
    finished: Callable[[str, StageDirectory], None] = field(default=lambda name, place: None)
    """Told after every stage that did something."""


def run_pipeline(
    recipe: PipelineRecipe, stages: Sequence[Stage], display: Display, only: str | None = None, start: str | None = None
) -> bool:
    """Run what `plan` says; returns False if it was interrupted, so that the same call goes on there.

    Raises:
        CheckpointError: the directory holds something else than a pipeline.
    """
    directory = _open(recipe)
    planned = plan(recipe, stages, only, start)
    _discard(planned, directory)  # before anything runs, or a kill would leave old results beside new ones
    _write_lineage(directory, planned)
    try:
        if only is None:
            _measure(recipe, directory.stage(BASE), resolve(recipe.model.path), BASE, display)
        for number, one in enumerate(planned, 1):
            display.stage(one, number, len(planned))
            if one.action in (Action.RUN, Action.RESUME):
                _work(one, directory, display)
            if one.action not in (Action.SKIP, Action.LEAVE):
                _after(recipe, one, directory, display)
            _write_lineage(directory, planned)
    except Interrupted:
        return False
    return True


def _open(recipe: PipelineRecipe) -> PipelineDirectory:
    directory = PipelineDirectory(Path(recipe.pipeline.directory))
    path = directory.path
    if path.exists() and not (path.is_dir() and (directory.recipe.exists() or not any(path.iterdir()))):
        raise CheckpointError(f"{path} exists and is not a pipeline: choose another pipeline.directory")
    path.mkdir(parents=True, exist_ok=True)
    write_file(directory.recipe, dump_toml(recipe).encode())
    write_file(path / "environment.json", json.dumps(environment(), indent=1).encode())
    return directory


def _discard(planned: Sequence[Planned], directory: PipelineDirectory) -> None:
    for one in planned:
        if one.action is Action.RUN:
            shutil.rmtree(directory.stage(one.stage.name).path, ignore_errors=True)


def _work(one: Planned, directory: PipelineDirectory, display: Display) -> None:
    """Run the stage and record what it made."""
    stage, place = one.stage, directory.stage(one.stage.name)
    place.write("begun", {"fingerprint": one.fingerprint, "code": code_version(), "settings": stage.settings})
    began = time.perf_counter()
    outputs = {name: str(_output(directory.stage(name))) for name in stage.inputs}
    made = stage.run(Workplace(place, outputs, display.train, display.progress))
    place.write("cost", {"seconds": time.perf_counter() - began})
    place.write("facts", _facts(one, made, place))


def _facts(one: Planned, made: Made, place: StageDirectory) -> dict[str, object]:
    return {
        "name": one.stage.name,
        "kind": one.stage.kind,
        "algorithm": one.stage.algorithm,
        "makes": one.stage.makes,
        "fingerprint": one.fingerprint,
        "inputs": one.inputs,
        "output": str(made.output.relative_to(place.path)),
        "output_hash": made.output_hash,
        "tokens": {"sampled": made.sampled_tokens, "trained": made.trained_tokens},
        "statistics": dict(made.statistics),
        "evaluation": None,
    }


def _output(place: StageDirectory) -> Path:
    facts = place.facts
    if facts is None:
        raise CheckpointError(f"{place.path} has not been finished")
    return place.path / str(facts["output"])


def _after(recipe: PipelineRecipe, one: Planned, directory: PipelineDirectory, display: Display) -> None:
    """Measure what the stage made, if it is a model that answers."""
    place = directory.stage(one.stage.name)
    if one.stage.makes == "model":
        _measure(recipe, place, str(_output(place)), one.stage.name, display)
    display.finished(one.stage.name, place)


def _measure(recipe: PipelineRecipe, place: StageDirectory, model: str, name: str, display: Display) -> None:
    """Evaluate a model and add what was measured to the stage's facts, unless it is there."""
    mark = measurement(recipe)
    base = {"name": name, "kind": "start", "algorithm": None, "makes": "model", "output": model, "inputs": {}}
    facts = place.facts or base
    if facts.get("evaluation_fingerprint") == mark and facts["output"] == (model if name == BASE else facts["output"]):
        return
    began = time.perf_counter()
    found = evaluate_model(recipe, model, place, lambda done, total: display.progress(f"measuring {name}", done, total))
    place.write("cost", {**place.cost, "evaluation_seconds": time.perf_counter() - began})
    place.write("facts", {**facts, "evaluation": found, "evaluation_fingerprint": mark})
    if name == BASE:
        display.finished(name, place)


def _write_lineage(directory: PipelineDirectory, planned: Sequence[Planned]) -> None:
    """Which stage made what from what, as far as it is known."""
    rows = []
    for one in planned:
        facts = directory.stage(one.stage.name).facts
        current = facts is not None and facts["fingerprint"] == one.fingerprint
        rows.append(
            {
                "name": one.stage.name,
                "kind": one.stage.kind,
                "algorithm": one.stage.algorithm,
                "makes": one.stage.makes,
                "inputs": list(one.inputs),
                "fingerprint": one.fingerprint,
                "output": f"stages/{one.stage.name}/{facts['output']}" if facts and current else None,
                "output_hash": facts["output_hash"] if facts and current else None,
                "status": "finished" if current else "not run",
            }
        )
    base = planned[0].stage.recipe.model.path
    content = {"name": directory.path.resolve().name, "base": base, "stages": rows}
    write_file(directory.lineage, (json.dumps(content, indent=1) + "\n").encode())


