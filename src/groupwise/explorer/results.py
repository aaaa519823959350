"""Results beside runs: pipelines, measurements of test-time compute, and process reward models side by side.

A directory that somebody else made is opened only where nothing in it leads out of it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from groupwise.errors import DataError, GroupwiseError
from groupwise.explorer.opened import NotThereError, tail, unsafe
from groupwise.explorer.pipeline import pipeline_facts
from groupwise.explorer.run import is_number
from groupwise.runs.ledger import LineFile, stamp_of

Kind = Literal["pipeline", "budget", "process"]
LINEAGE, BUDGET = "lineage.json", "budget.jsonl"
OF_STAGE = (
    "facts.json", "begun.json", "cost.json", "evaluation.parquet", "data.jsonl", "run", "run/config.toml",
    "run/metrics.jsonl", "run/ledger.jsonl", "run/finished.json", "run/rollouts", "run/environment.json",
)  # fmt: skip
MOST_POINTS = 2000
_STAGE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(slots=True)
class Result:
    """One thing that a directory holds beside runs."""

    index: int
    kind: Kind
    path: Path
    stage: str = ""
    depth: int = 1
    _kept: tuple[Any, dict[str, Any]] = field(default=(None, {}), init=False)  # facts, behind the stamps of their files

    @property
    def name(self) -> str:
        return " · ".join(filter(None, (tail(self.path.resolve(), self.depth), self.stage)))

    def headline(self) -> dict[str, Any]:
        return {"index": self.index, "kind": self.kind, "name": self.name, "notices": self.trouble()}

    def trouble(self) -> list[str]:
        try:
            names = stage_names(self.path) if self.kind != "budget" else []
        except GroupwiseError as error:
            return [str(error)]
        parts = [LINEAGE, BUDGET, "seconds.jsonl", "pipeline.toml", "stages", *(f"stages/{name}" for name in names)]
        parts += [f"stages/{name}/{part}" for name in names for part in OF_STAGE]
        why = unsafe(self.path, parts)
        return [why] if why else []

    def facts(self, pages: Mapping[Path, int]) -> dict[str, Any]:
        """The facts of its page; NotThereError or DataError if it cannot be shown."""
        if trouble := self.trouble():
            raise NotThereError(f"{self.name}: {trouble[0]}")
        parts = [LINEAGE, BUDGET, "seconds.jsonl"]
        if self.kind != "budget":
            of_stage = ("facts.json", "cost.json", "begun.json", "run/metrics.jsonl", "data.jsonl")
            parts += [f"stages/{name}/{part}" for name in stage_names(self.path) for part in of_stage]
        stamps = [(part, stamp_of(self.path / part)) for part in parts if (self.path / part).is_file()]
        if self._kept[0] != (stamp := (stamps, len(pages), self.depth)):
            if self.kind == "pipeline":
                facts = pipeline_facts(self.path, pages)
            else:
                facts = _budget(self.path) if self.kind == "budget" else _process(self.path, self.stage)
            self._kept = stamp, {**self.headline(), **facts}
        return self._kept[1]


class Found(NamedTuple):
    """The contents of the directories that a command was given."""

    runs: list[Path]
    results: list[tuple[Kind, Path, str]]


def found_in(paths: Iterable[Path]) -> Found:
    """Runs and results of directories: a pipeline brings the runs of its stages, a stage's directory its own."""
    runs, results = dict[Path, Path](), list[tuple[Kind, Path, str]]()
    for path in paths:
        is_pipeline, is_budget = (path / LINEAGE).is_file(), (path / BUDGET).is_file()
        if is_pipeline:
            try:
                entries = _entries(path)
            except DataError:  # the list of results says why
                entries = []
            results.append(("pipeline", path, ""))
            of_stages = [path / "stages" / str(entry["name"]) / "run" for entry in entries]
            runs |= {run.resolve(): run for run in of_stages if (run / "config.toml").is_file()}
            judged = (str(entry["name"]) for entry in entries if entry.get("kind") == "step_evaluation")
            there = (name for name in judged if (path / "stages" / name / "data.jsonl").is_file())
            results += [("process", path, name) for name in there]
            for name in (str(entry["name"]) for entry in entries if entry.get("kind") == "budget"):
                place = f"stages/{name}/budget"
                if (path / place / BUDGET).is_file() and not unsafe(path, ["stages", f"stages/{name}", place]):
                    results.append(("budget", path / place, name))
        if is_budget:
            results.append(("budget", path, ""))
        if is_pipeline or is_budget:
            continue
        is_stage = not (path / "config.toml").exists() and not unsafe(path, ["run", "budget"])
        if is_stage and (path / "budget" / BUDGET).is_file():
            results.append(("budget", path / "budget", path.name))
        else:
            run = path / "run" if is_stage and (path / "run" / "config.toml").is_file() else path
            runs.setdefault(run.resolve(), run)
    return Found(list(runs.values()), results)


def stage_names(path: Path) -> list[str]:
    """Names of a pipeline's stages, each of which is the name of a folder; DataError if the lineage cannot be read."""
    return [str(entry["name"]) for entry in _entries(path)]


def _entries(path: Path) -> list[dict[str, Any]]:
    file = path / LINEAGE
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["stages"]
        names = [entry["name"] for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{file.name} is not the lineage of a pipeline: {error!r}") from None
    if bad := [name for name in names if not isinstance(name, str) or not _STAGE.fullmatch(name)]:
        raise DataError(f"{file.name}: {bad[0]!r} is no name of a stage; letters, digits and _ are allowed")
    return list(entries)


def _budget(path: Path) -> dict[str, Any]:
    def is_point(line: Mapping[str, Any]) -> bool:
        accuracy, numbers = line.get("accuracy"), (line.get("budget"), line.get("policy_tokens"))
        is_estimate = isinstance(accuracy, list) and len(accuracy) == 3
        is_measured = is_estimate and all(number is None or is_number(number) for number in accuracy or ())
        return isinstance(line.get("method"), str) and all(map(is_number, numbers)) and is_measured

    lines, damage = _objects(path / BUDGET)
    times, more = _objects(path / "seconds.jsonl")
    seconds = {
        (line.get("method"), line.get("budget")): line.get("seconds") for line in times if line.get("kind") == "point"
    }
    kinds: dict[str, list[dict[str, Any]]] = {
        name: [line for line in lines if line.get("kind") == name]
        for name in ("settings", "point", "optimal", "equal_tokens", "flips")
    }
    points = [point for point in kinds["point"] if is_point(point)][:MOST_POINTS]
    settings = kinds["settings"][0] if kinds["settings"] else {}
    return {
        "settings": {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in settings.items()
            if name not in ("kind", "left_out")
        },
        "left_out": settings.get("left_out") or [],
        "points": [{**point, "seconds": seconds.get((point["method"], point["budget"]))} for point in points],
        **{name: kinds[name][:MOST_POINTS] for name in ("optimal", "equal_tokens", "flips")},
        "notices": [*damage, *more, *([] if points else [f"{BUDGET} has no figures of any method"])],
    }


def _process(path: Path, stage: str) -> dict[str, Any]:
    def estimate(value: Any) -> list[float | None] | None:
        numbers = [number if is_number(number) else None for number in (value if isinstance(value, list) else [value])]
        return None if not numbers or numbers[0] is None else numbers

    lines, damage = _objects(path / "stages" / stage / "data.jsonl")
    figures = list(dict.fromkeys(name for line in lines for name in line if name != "judge"))
    return {
        "judges": [str(line.get("judge")) for line in lines],
        "figures": [{"name": name, "values": [estimate(line.get(name)) for line in lines]} for name in figures],
        "notices": [*damage, *([] if lines else ["the stage has no figures"])],
    }


def _objects(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    lines, damage = LineFile(path).read()
    return [line for _, line in lines], list(map(str, damage[:20]))
