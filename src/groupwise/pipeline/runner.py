"""Runs a pipeline's stages in order; killed at any moment, the same call resumes inside the stage it was in."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.artifacts import located
from groupwise.config import dump_toml
from groupwise.errors import CheckpointError, GroupwiseError
from groupwise.models.config import resolve
from groupwise.pipeline.base import Interrupted, Made, Stage, Workplace
from groupwise.pipeline.directory import PipelineDirectory, StageDirectory, content_hash
from groupwise.pipeline.evaluation import evaluate_model
from groupwise.pipeline.plan import Action, Planned, is_measured, measurement, other_input, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe
from groupwise.runs.atomic import write_file
from groupwise.runs.directory import environment
from groupwise.runs.lock import LOCK, Hold
from groupwise.runs.run import Run
from groupwise.trainers import Recipe, train

PERIOD_S = 5.0
"""So much of an attempt that is killed may be missing."""


@contextmanager
def timed(place: StageDirectory, name: str) -> Iterator[None]:
    """Add the seconds of what is done inside to `name` and `processor_name` in the stage's cost, again and again."""
    clocks = {name: time.perf_counter, f"processor_{name}": time.process_time}
    starts = {part: clock() - place.cost.get(part, 0.0) for part, clock in clocks.items()}
    done = threading.Event()

    def save() -> None:
        place.write("cost", {**place.cost, **{part: clock() - starts[part] for part, clock in clocks.items()}})

    def save_often() -> None:
        while not done.wait(PERIOD_S):
            try:
                save()
            except CheckpointError:  # a full disk stops the work itself, which says so
                return

    thread = threading.Thread(target=save_often, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        save()


@dataclass(frozen=True, slots=True)
class Display:
    """Who shows what happens."""

    train: Callable[[Recipe], Run] = train
    """Runs a trainer's recipe with its own display."""
    stage: Callable[[Planned, int, int], None] = field(default=lambda planned, number, total: None)
    """Called before every stage: (what happens to it, its number from 1, number of stages)."""
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    """Called with how far a long piece of work is."""
    finished: Callable[[str, StageDirectory], None] = field(default=lambda name, place: None)
    """Called after every stage that did something."""


SILENT = Display()
"""Shows nothing."""


def run_pipeline(
    recipe: PipelineRecipe,
    stages: Sequence[Stage[Any]],
    display: Display = SILENT,
    only: str | None = None,
    start: str | None = None,
) -> bool:
    """Run what `plan` says; returns False if it was interrupted (Ctrl-C), so that the same call resumes there.

    Args:
        recipe: with `stages`, what `load_pipeline` gives.
        stages: in the order in which they run.
        display: who is told what happens; by default nobody.
        only: run nothing but the stage of this name.
        start: run the stage of this name, and what stands on it, anew, finished or not.

    Raises:
        CheckpointError: the directory holds something else than a pipeline, or another process works in it.
        GroupwiseError: of a stage, with its name; what was done before stays, and the same call tries again.
    """
    with _opened(Path(recipe.pipeline.directory)) as directory:
        planned = plan(recipe, stages, only, start)
        write_file(directory.recipe, dump_toml(recipe).encode())
        write_file(directory.path / "environment.json", json.dumps(environment(), indent=1).encode())
        # before anything runs, and the last stage first: a kill leaves no result that stands on a newer one
        for one in reversed(planned):
            if one.action is Action.RUN:
                directory.stage(one.stage.name).discard()
        _write_lineage(recipe, directory, planned)
        try:
            if only is None:
                with _named(BASE):
                    _measure_base(recipe, directory.stage(BASE), display)
            for number, intended in enumerate(planned, 1):
                one = _reconsidered(intended, directory)
                display.stage(one, number, len(planned))
                with _named(one.stage.name):
                    _do(recipe, one, directory, display)
                _write_lineage(recipe, directory, planned)
        except (Interrupted, KeyboardInterrupt):
            return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[PipelineDirectory]:
    """The pipeline directory, held by this process alone; a killed process holds nothing."""
    directory = PipelineDirectory(path)
    harmless = {LOCK, f".{directory.recipe.name}.tmp"}  # what a kill at the beginning leaves
    if (
        path.exists()
        and not directory.recipe.exists()
        and (not path.is_dir() or {entry.name for entry in path.iterdir()} - harmless)
    ):
        raise CheckpointError(f"{path} exists and is not a pipeline: choose another pipeline.directory")
    hold = Hold(path, "pipeline.directory")
    try:
        yield directory
    finally:
        hold.release()


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors say in which stage they happened."""
    try:
        yield
    except GroupwiseError as error:
        raise type(error)(f"stage {name}: {error}") from error


def _reconsidered(one: Planned, directory: PipelineDirectory) -> Planned:
    """Run again what was made from other outputs than its inputs have now: a stage that was made again may differ."""
    place = directory.stage(one.stage.name)
    if one.action in (Action.RUN, Action.LEAVE) or (changed := other_input(place, one.stage, directory)) is None:
        return one
    place.discard()
    return one._replace(action=Action.RUN, why=f"{changed} made something else")


def _do(recipe: PipelineRecipe, one: Planned, directory: PipelineDirectory, display: Display) -> None:
    """Run and measure a stage, as far as it is planned."""
    if one.action in (Action.SKIP, Action.LEAVE):
        return
    place = directory.stage(one.stage.name)
    if one.action is not Action.MEASURE:
        _work(one, directory, display)
    if one.stage.makes == "model":
        _measure(recipe, place, str(_output(place)), one.stage.name, display)
    display.finished(one.stage.name, place)


def _work(one: Planned, directory: PipelineDirectory, display: Display) -> None:
    """Run the stage and record what it made."""
    stage, place = one.stage, directory.stage(one.stage.name)
    read = {name: directory.stage(name).output_hash for name in stage.inputs}
    begun = {"fingerprint": one.fingerprint, "code": stage.code, "inputs": one.inputs, "read": read}
    begun["settings"] = stage.settings
    place.write("begun", begun)
    outputs = {name: str(_output(directory.stage(name))) for name in stage.inputs}
    with timed(place, "seconds"):
        made = stage.run(located(stage.config, outputs), Workplace(place, outputs, display.train, display.progress))
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


def _measure_base(recipe: PipelineRecipe, place: StageDirectory, display: Display) -> None:
    """Measure the model that everything starts from, unless this very model has been measured."""
    model = resolve(recipe.model.path)
    start: dict[str, object] = {
        "name": BASE,
        "kind": "start",
        "algorithm": None,
        "makes": "model",
        "inputs": {},
        "output": recipe.model.path,
        "output_hash": content_hash(Path(model)) if Path(model).exists() else "",
    }
    facts = place.facts or {}
    if any(facts.get(key) != value for key, value in start.items()):
        place.discard()
        place.write("facts", start)
    if not is_measured(place, place.facts or {}, measurement(recipe)):
        _measure(recipe, place, model, BASE, display)
        display.finished(BASE, place)


def _measure(recipe: PipelineRecipe, place: StageDirectory, model: str, name: str, display: Display) -> None:
    """Evaluate a model and add what was measured to the stage's facts, which meanwhile say nothing."""
    begun = {key: value for key, value in (place.facts or {}).items() if key != "evaluation_fingerprint"}
    place.write("facts", {**begun, "evaluation": None})
    with timed(place, "evaluation_seconds"):
        found = evaluate_model(
            recipe, model, place, lambda done, total: display.progress(f"measuring {name}", done, total)
        )
    place.write("facts", {**(place.facts or {}), "evaluation": found, "evaluation_fingerprint": measurement(recipe)})


def _write_lineage(recipe: PipelineRecipe, directory: PipelineDirectory, planned: Sequence[Planned]) -> None:
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
    content = {"name": directory.path.resolve().name, "base": recipe.model.path, "stages": rows}
    write_file(directory.lineage, (json.dumps(content, indent=1) + "\n").encode())
