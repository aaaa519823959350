"""The reader of a pipeline directory: no model, no torch, nothing but the files.

An unfinished pipeline is read as far as it got: what is not there yet is empty or None, never a zero.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate
from groupwise.errors import ConfigError, DataError, told_as
from groupwise.runs.directory import RunDirectory
from groupwise.runs.records import Records
from groupwise.runs.rollouts import read_rows
from groupwise.runs.row import Row

BASE, SHIPPED = "base", "the shipped model"
"""The model that the pipeline starts from: the first row of every table; and that of the package, beside another."""

Evaluation = Mapping[str, Mapping[str, Estimate]]
"""Task of the recipe -> metric -> mean with its 95 % interval; what was not measured is absent."""


class Stage(NamedTuple):
    """One stage: what it was made of, what it made, what that is worth."""

    name: str
    kind: str
    algorithm: str | None
    makes: str
    inputs: tuple[str, ...]
    starts_from: str | None
    state: str
    """`finished`, `unfinished`, `not run`, or `outdated`: made with other settings, and not shown. Of the base model
    `finished` or `not measured`."""
    fingerprint: str
    output: str
    output_hash: str
    tokens: Mapping[str, int]
    seconds: Mapping[str, float]
    statistics: Mapping[str, Any]
    evaluation: Evaluation
    sizes: Mapping[str, tuple[int, int]]
    open_ended: frozenset[str]
    completions: tuple[Row, ...]
    run: Records | None
    lines: tuple[Mapping[str, Any], ...]


class PipelineData(NamedTuple):
    """One pipeline as its files tell it; the stages in order, the base model first."""

    name: str
    stages: tuple[Stage, ...]
    recipe: str

    @property
    def policies(self) -> tuple[Stage, ...]:
        others = ("reward_model", "process_reward_model")
        return tuple(stage for stage in self.stages if stage.makes == "model" and stage.algorithm not in others)

    @property
    def open_ended(self) -> frozenset[str]:
        return frozenset(task for stage in self.stages for task in stage.open_ended)

    def parent(self, stage: Stage) -> Stage | None:
        models = {model.name: model for model in self.policies if model.name != stage.name}
        names = (*stage.inputs, BASE) if stage.starts_from is None else (stage.starts_from,)
        return None if stage.name == BASE else next((models[name] for name in names if name in models), None)


def load_pipeline(directory: Path) -> PipelineData:
    """Read a pipeline directory; ConfigError if there is none, DataError if one of its files cannot be read."""
    path = directory / "lineage.json"
    if not path.exists():
        raise ConfigError(f"{directory} is not a pipeline directory: it has no lineage.json")
    try:
        lineage = _read(path)
        entries: list[Mapping[str, Any]] = list(lineage["stages"])
        if BASE not in [entry["name"] for entry in entries]:
            base = lineage.get("base", BASE)
            entries.insert(0, {"name": BASE, "kind": "start", "makes": "model", "inputs": [], "output": base})
        stages = tuple(_stage(directory, entry, lineage.get("base", BASE)) for entry in entries)
        names = [stage.name for stage in stages]
        for position, stage in enumerate(stages):  # everything is made of what came before it: there are no cycles
            later = sorted(set(stage.inputs) & set(names[position:]))
            if later or stage.name in names[:position]:
                fault = f"has the input {later[0]!r}, which comes later" if later else "is there twice"
                raise DataError(
                    f"{path}: the stage {stage.name!r} {fault}; allowed are different stages, each made of earlier ones"
                )
        recipe = directory / "pipeline.toml"
        text = recipe.read_text(encoding="utf-8", errors="replace") if recipe.exists() else ""
        return PipelineData(str(lineage["name"]), stages, text)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not the lineage of a pipeline: {error!r}") from None


def _stage(directory: Path, entry: Mapping[str, Any], base: str) -> Stage:
    folder = directory / "stages" / entry["name"]
    facts, state = _read(folder / "facts.json"), "finished"
    if facts and entry.get("fingerprint") not in (None, facts.get("fingerprint")):
        facts, state = {}, "outdated"
    elif not facts:
        never = "not measured" if entry["name"] == BASE else "not run"
        state = "unfinished" if (folder / "begun.json").exists() else never
    run, rows = RunDirectory(folder / "run"), folder / "evaluation.parquet"
    is_current = state != "outdated"
    is_trained = is_current and run.config.exists()
    measurements = dict(facts.get("evaluation") or {})
    with told_as(DataError, f"{folder / 'facts.json'}: a measurement is not [value, low, high]", TypeError, ValueError):
        evaluation = {
            task: {key: _estimate(*value) for key, value in measurement.items() if isinstance(value, list)}
            for task, measurement in measurements.items()
        }
    settings = (_read(folder / "begun.json").get("settings") or {}) if is_current else {}
    start = None if settings.get("new_model") else (settings.get("model") or {}).get("path")

    def named(model: str) -> str:
        # the model that a pipeline starts from is its stage `base`, and that of the package is called so, too
        return BASE if model == base else SHIPPED if model == BASE else model.strip("{}")

    return Stage(
        name=entry["name"], kind=entry["kind"], algorithm=entry.get("algorithm"), makes=entry["makes"],
        inputs=tuple(map(named, entry["inputs"])), starts_from=named(start) if start else None, state=state,
        fingerprint=entry.get("fingerprint") or "", output=entry.get("output") or "",
        output_hash=facts.get("output_hash") or "", tokens=facts.get("tokens") or {},
        seconds=_read(folder / "cost.json") if is_current else {}, statistics=facts.get("statistics") or {},
        evaluation=evaluation,
        sizes={task: (of_task["num_problems"], of_task["num_samples"]) for task, of_task in measurements.items()},
        open_ended=frozenset(task for task, measurement in measurements.items() if measurement["kind"] == "open_ended"),
        completions=read_rows(rows) if is_current and rows.exists() else (),
        run=Records.open(run.path).intact() if is_trained else None,
        lines=tuple(run.metrics.lines()) if is_trained else (),
    )  # fmt: skip


def _estimate(value: float, low: float | None, high: float | None) -> Estimate:
    return Estimate(float(value), -math.inf if low is None else float(low), math.inf if high is None else float(high))


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    with told_as(DataError, f"{path} cannot be read", OSError, ValueError):
        table = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(table, dict):
        raise DataError(f"{path} holds no JSON object")
    return table
