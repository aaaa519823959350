"""The runner: a pipeline's stages in order; after a kill at any moment the same call resumes inside the stage."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.config import dump_toml
from groupwise.config.schema import located, resolve
from groupwise.errors import CheckpointError, ConfigError, GroupwiseError
from groupwise.pipeline.base import Interrupted, Stage, Workplace
from groupwise.pipeline.directory import PipelineDirectory, StageDirectory, content_hash
from groupwise.pipeline.evaluation import evaluate_model
from groupwise.pipeline.plan import Action, Planned, is_measured, measurement, other_input, plan
from groupwise.pipeline.recipe import BASE, PipelineRecipe
from groupwise.ranks.group import ranks_started
from groupwise.runs.atomic import LOCK, Hold, write_file
from groupwise.runs.directory import ENVIRONMENT, environment
from groupwise.runs.ledger import or_null
from groupwise.runs.processes import resuming
from groupwise.runs.run import Run
from groupwise.trainers import Recipe, train

PERIOD_S = 5.0


@contextmanager
def timed(stage_dir: StageDirectory, name: str) -> Iterator[None]:
    """Add the seconds of the block to `name` and `processor_name` in the stage's cost, every few seconds."""
    clocks = {name: time.perf_counter, f"processor_{name}": time.process_time}
    starts = {part: clock() - stage_dir.cost.get(part, 0.0) for part, clock in clocks.items()}
    done = threading.Event()

    def save() -> None:
        stage_dir.write("cost", {**stage_dir.cost, **{part: clock() - starts[part] for part, clock in clocks.items()}})

    def save_often() -> None:
        while not done.wait(PERIOD_S):
            try:
                save()
            except CheckpointError:  # a full disk stops the work itself, which reports it
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
    """Callbacks that show progress."""

    train: Callable[[Recipe], Run] = train
    stage: Callable[[Planned, int, int], None] = field(default=lambda planned, number, total: None)
    """Called before every stage: (its action, its number from 1, number of stages)."""
    finished: Callable[[str, StageDirectory], None] = field(default=lambda name, stage_dir: None)


SILENT = Display()


def run_pipeline(
    recipe: PipelineRecipe,
    stages: Sequence[Stage[Any]],
    display: Display = SILENT,
    only: str | None = None,
    start: str | None = None,
) -> bool:
    """Run what `plan` returns; return False after an interrupt (Ctrl-C), after which the same call resumes.

    Args:
        recipe: the recipe that `load_pipeline` returns with the stages.
        stages: in the order in which they run.
        display: callbacks; by default nothing is shown.
        only: run the stage of this name alone.
        start: run the stage of this name again, and all that depends on it, finished or not.

    Raises:
        ConfigError: a launcher started this process as one of several.
        CheckpointError: the directory is no pipeline, or another process works in it.
        GroupwiseError: the error of a stage, with its name; finished work stays, and the same call tries again.
    """
    if (ranks := ranks_started()) > 1:
        raise ConfigError(
            f"a pipeline runs in one process, and a launcher started {ranks}: run it without torchrun, or its training "
            "stages one by one with `groupwise train RECIPE --ranks N`"
        )
    path = Path(recipe.pipeline.directory)
    directory = PipelineDirectory(path)
    first = (directory.recipe.name, ENVIRONMENT, directory.lineage.name)
    harmless = {LOCK, *first, *(f".{name}.tmp" for name in first)}  # left by a kill at the start
    if (
        path.exists()
        and not directory.lineage.exists()  # a recipe of the user's own, beside other files, makes no pipeline
        and (not path.is_dir() or {entry.name for entry in path.iterdir()} - harmless)
    ):
        raise CheckpointError(f"{path} exists and is not a pipeline: choose another pipeline.directory")
    with Hold(path, "pipeline.directory"), resuming(path):
        planned = plan(recipe, stages, only, start)
        write_file(directory.recipe, dump_toml(recipe).encode())
        write_file(directory.path / ENVIRONMENT, json.dumps(environment(), indent=1).encode())
        # before anything runs, and the last stage first: a kill leaves no result that is older than its input
        for entry in reversed(planned):
            if entry.action is Action.RUN:
                directory.stage(entry.stage.name).discard()
        _write_lineage(recipe, directory, planned)
        try:
            if only is None:
                with _named(BASE):
                    _measure_base(recipe, directory.stage(BASE), display)
            for number, entry in enumerate(planned, 1):
                stage_dir = directory.stage(entry.stage.name)
                if entry.action not in (Action.RUN, Action.LEAVE) and (
                    changed := other_input(stage_dir, entry.stage, directory)
                ):  # an input that was made again in this call may differ
                    stage_dir.discard()
                    entry = entry._replace(action=Action.RUN, why=f"{changed} made something else")
                display.stage(entry, number, len(planned))
                if entry.action not in (Action.SKIP, Action.LEAVE):
                    with _named(entry.stage.name):
                        if entry.action is not Action.MEASURE:
                            _work(entry, directory, display)
                        if entry.stage.makes == "model":
                            _measure(recipe, stage_dir, str(_output(stage_dir)))
                        display.finished(entry.stage.name, stage_dir)
                _write_lineage(recipe, directory, planned)
        except (Interrupted, KeyboardInterrupt):
            return False
    return True


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except GroupwiseError as error:
        raise type(error)(f"stage {name}: {error}") from error


def _work(entry: Planned, directory: PipelineDirectory, display: Display) -> None:
    stage, stage_dir = entry.stage, directory.stage(entry.stage.name)
    read = {name: directory.stage(name).output_hash for name in stage.inputs}
    begun = {"fingerprint": entry.fingerprint, "code": stage.code, "inputs": entry.inputs, "read": read}
    stage_dir.write("begun", {**begun, "settings": stage.settings})
    outputs = {name: str(_output(directory.stage(name))) for name in stage.inputs}
    with timed(stage_dir, "seconds"):
        result = stage.run(located(stage.config, outputs), Workplace(stage_dir, display.train))
    facts = {
        "name": stage.name, "kind": stage.kind, "algorithm": stage.algorithm, "makes": stage.makes,
        "fingerprint": entry.fingerprint, "inputs": entry.inputs,
        "output": str(result.output.relative_to(stage_dir.path)), "output_hash": result.output_hash,
        "tokens": {"sampled": result.sampled_tokens, "trained": result.trained_tokens},
        "statistics": or_null(result.statistics), "evaluation": None,
    }  # fmt: skip
    stage_dir.write("facts", facts)


def _output(stage_dir: StageDirectory) -> Path:
    facts = stage_dir.facts
    if facts is None:
        raise CheckpointError(f"{stage_dir.path} has not been finished")
    return stage_dir.path / str(facts["output"])


def _measure_base(recipe: PipelineRecipe, stage_dir: StageDirectory, display: Display) -> None:
    model = resolve(recipe.model.path)
    start: dict[str, object] = {
        "name": BASE, "kind": "start", "algorithm": None, "makes": "model", "inputs": {}, "output": recipe.model.path,
        "output_hash": content_hash(Path(model)) if Path(model).exists() else "",
    }  # fmt: skip
    facts = stage_dir.facts or {}
    if any(facts.get(key) != value for key, value in start.items()):
        stage_dir.discard()
        stage_dir.write("facts", start)
    if not is_measured(stage_dir, stage_dir.facts or {}, measurement(recipe)):
        _measure(recipe, stage_dir, model)
        display.finished(BASE, stage_dir)


def _measure(recipe: PipelineRecipe, stage_dir: StageDirectory, model: str) -> None:
    begun = {key: value for key, value in (stage_dir.facts or {}).items() if key != "evaluation_fingerprint"}
    stage_dir.write("facts", {**begun, "evaluation": None})
    with timed(stage_dir, "evaluation_seconds"):
        evaluation = evaluate_model(recipe, model, stage_dir)
    stage_dir.write(
        "facts", {**(stage_dir.facts or {}), "evaluation": evaluation, "evaluation_fingerprint": measurement(recipe)}
    )


def _write_lineage(recipe: PipelineRecipe, directory: PipelineDirectory, planned: Sequence[Planned]) -> None:
    rows = []
    for entry in planned:
        facts = directory.stage(entry.stage.name).facts
        current = facts is not None and facts["fingerprint"] == entry.fingerprint
        stage = entry.stage
        rows.append({
            "name": stage.name, "kind": stage.kind, "algorithm": stage.algorithm, "makes": stage.makes,
            "inputs": list(entry.inputs), "fingerprint": entry.fingerprint,
            "output": f"stages/{stage.name}/{facts['output']}" if facts and current else None,
            "output_hash": facts["output_hash"] if facts and current else None,
            "status": "finished" if current else "not run",
        })  # fmt: skip
    content = {"name": directory.path.resolve().name, "base": recipe.model.path, "stages": rows}
    write_file(directory.lineage, (json.dumps(content, indent=1) + "\n").encode())
