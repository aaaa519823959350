"""What is no run: pipelines, measurements of test-time compute, and process reward models side by side.

A directory that somebody else made is opened only where nothing in it leads out of it. Figures are those of the files,
and tables those of the static reports: nothing is computed twice.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from groupwise.errors import DataError, GroupwiseError
from groupwise.explorer.opened import NotThereError, tail, unsafe
from groupwise.explorer.pipeline import pipeline_facts
from groupwise.runs.ledger import Lines

Kind = Literal["pipeline", "budget", "process"]
LINEAGE, BUDGET = "lineage.json", "budget.jsonl"
OF_STAGE = (
    "facts.json", "begun.json", "cost.json", "evaluation.parquet", "data.jsonl", "run", "run/config.toml",
    "run/metrics.jsonl", "run/ledger.jsonl", "run/finished.json", "run/rollouts", "run/environment.json",
)  # fmt: skip
"""Names in the folder of a stage that are read."""
MOST_POINTS = 2000
_STAGE = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(slots=True)
class Result:
    """One thing that a directory holds beside runs."""

    index: int
    kind: Kind
    path: Path
    """The directory of the pipeline or of the measurement."""
    stage: str = ""
    """Of a pipeline, the stage that it is the result of."""
    depth: int = 1
    """How many names of its path it takes to tell it from the others that are shown."""
    _kept: tuple[object, dict[str, Any]] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """Of the directory, and of the stage."""
        return " · ".join(filter(None, (tail(self.path.resolve(), self.depth), self.stage)))

    def headline(self) -> dict[str, Any]:
        """A few words for the list."""
        return {"index": self.index, "kind": self.kind, "name": self.name, "notices": self.trouble()}

    def trouble(self) -> list[str]:
        """Why it cannot be shown; empty where it can."""
        try:
            names = stage_names(self.path) if self.kind != "budget" else []
        except GroupwiseError as error:
            return [str(error)]
        parts = [LINEAGE, BUDGET, "seconds.jsonl", "pipeline.toml", "stages", *(f"stages/{name}" for name in names)]
        parts += [f"stages/{name}/{part}" for name in names for part in OF_STAGE]
        why = unsafe(self.path, parts)
        return [why] if why else []

    def facts(self, runs: Mapping[Path, int]) -> dict[str, Any]:
        """The facts of its page.

        Args:
            runs: index of every run that is shown, by its directory.

        Raises:
            NotThereError: it cannot be shown.
            DataError: a file of it cannot be read.
        """
        if trouble := self.trouble():
            raise NotThereError(f"{self.name}: {trouble[0]}")
        stamp = (stamp_of(self.path, self.kind), len(runs), self.depth)
        if self._kept is None or self._kept[0] != stamp:
            found = {"pipeline": _pipeline, "budget": _budget, "process": _process}[self.kind](self, runs)
            self._kept = (stamp, {**self.headline(), **found})
        return self._kept[1]


class Found(NamedTuple):
    """What the directories of a command hold."""

    runs: list[Path]
    results: list[tuple[Kind, Path, str]]
    """Kind, directory and stage."""


def found_in(paths: Iterable[Path]) -> Found:
    """Runs and results of directories: a pipeline brings the runs of its stages with it."""
    runs: dict[Path, Path] = {}
    results: list[tuple[Kind, Path, str]] = []
    for path in paths:
        is_pipeline, is_budget = (path / LINEAGE).is_file(), (path / BUDGET).is_file()
        if is_pipeline:
            entries = _entries_or_none(path)
            results.append(("pipeline", path, ""))
            own = [path / "stages" / str(entry["name"]) / "run" for entry in entries]
            runs |= {run.resolve(): run for run in own if (run / "config.toml").is_file()}
            of_steps = [str(one["name"]) for one in entries if one.get("kind") == "step_evaluation"]
            there = (name for name in of_steps if (path / "stages" / name / "data.jsonl").is_file())
            results += [("process", path, name) for name in there]
            searched = (str(one["name"]) for one in entries if one.get("kind") == "budget")
            results += [("budget", path / _budget_of(name), name) for name in searched if _is_there(path, name)]
        if is_budget:
            results.append(("budget", path, ""))
        if not is_pipeline and not is_budget:
            runs.setdefault(path.resolve(), path)
    return Found(list(runs.values()), results)


def _budget_of(stage: str) -> str:
    return f"stages/{stage}/budget"


def _is_there(path: Path, stage: str) -> bool:
    """Whether a stage of test-time compute has figures, and in the pipeline's own directory."""
    place = _budget_of(stage)
    return (path / place / BUDGET).is_file() and not unsafe(path, ["stages", f"stages/{stage}", place])


def stage_names(path: Path) -> list[str]:
    """Names of a pipeline's stages, each of which is the name of a folder.

    Raises:
        DataError: the lineage cannot be read, or a name is none.
    """
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


def _entries_or_none(path: Path) -> list[dict[str, Any]]:
    try:
        return _entries(path)
    except DataError:  # the list of results says why
        return []


def stamp_of(path: Path, kind: Kind) -> tuple[tuple[str, int, int], ...]:
    """Size and time of every file that says how far a result is."""
    parts = [LINEAGE, BUDGET, "seconds.jsonl"]
    if kind != "budget":
        of_stage = ("facts.json", "cost.json", "begun.json", "run/metrics.jsonl", "data.jsonl")
        parts += [f"stages/{name}/{part}" for name in stage_names(path) for part in of_stage]
    stats = ((part, (path / part).stat()) for part in parts if (path / part).is_file())
    return tuple((part, stat.st_size, stat.st_mtime_ns) for part, stat in stats)


def _pipeline(result: Result, runs: Mapping[Path, int]) -> dict[str, Any]:
    return pipeline_facts(result.path, runs)


def _budget(result: Result, runs: Mapping[Path, int]) -> dict[str, Any]:
    """The lines of a measurement, each point with its seconds; `groupwise budget` computed all of it."""
    from groupwise.pages.budget_names import JOINED, METHODS

    lines, damage = _objects(result.path / BUDGET)
    times, more = _objects(result.path / "seconds.jsonl")
    seconds = {
        (one.get("method"), one.get("budget")): one.get("seconds") for one in times if one.get("kind") == "point"
    }
    kinds: dict[str, list[dict[str, Any]]] = {
        "settings": [],
        "point": [],
        "optimal": [],
        "equal_tokens": [],
        "flips": [],
    }
    for line in lines:
        kinds.get(str(line.get("kind")), []).append(line)
    points = [one for one in kinds["point"] if _is_point(one)][:MOST_POINTS]
    return {
        "settings": _words(kinds["settings"][0]) if kinds["settings"] else {},
        "points": [{**one, "seconds": seconds.get((one["method"], one["budget"]))} for one in points],
        **{name: kinds[name][:MOST_POINTS] for name in ("optimal", "equal_tokens", "flips")},
        "methods": {key: name for key, (name, _) in METHODS.items()},
        "joined": {key: name for key, (name, _) in JOINED.items()},
        "notices": [*damage, *more, *([] if points else [f"{BUDGET} has no figures of any method"])],
    }  # fmt: skip


def _is_point(line: Mapping[str, Any]) -> bool:
    accuracy, numbers = line.get("accuracy"), (line.get("budget"), line.get("policy_tokens"))
    return (
        isinstance(line.get("method"), str)
        and all(isinstance(one, int | float) for one in numbers)
        and isinstance(accuracy, list)
        and len(accuracy) == 3
        and all(one is None or isinstance(one, int | float) for one in accuracy)
    )


def _words(table: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in table.items() if name not in ("kind", "left_out")}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _process(result: Result, runs: Mapping[Path, int]) -> dict[str, Any]:
    """Process reward models side by side: a row for each figure, a column for each model."""
    lines, damage = _objects(result.path / "stages" / result.stage / "data.jsonl")
    judges = [str(line.get("judge")) for line in lines]
    figures = list(dict.fromkeys(name for line in lines for name in line if name != "judge"))
    return {
        "judges": judges,
        "figures": [{"name": name, "values": [_figure(line.get(name)) for line in lines]} for name in figures],
        "notices": [*damage, *([] if lines else ["the stage has no figures"])],
    }


def _figure(value: Any) -> list[float | None] | None:
    """[value, low, high] or [value]; None where it was not measured."""
    values = value if isinstance(value, list) else [value]
    numbers = [one if isinstance(one, int | float) and not isinstance(one, bool) else None for one in values]
    return None if not numbers or numbers[0] is None else numbers


def _objects(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    lines, damage = Lines(path).read()
    said = [f"{one.file}{'' if one.line is None else f', line {one.line}'}: {one.what}" for one in damage[:20]]
    return [line for _, line in lines], said


def numbered(found: Sequence[tuple[Kind, Path, str]]) -> list[Result]:
    """The results in order."""
    return [Result(index, *one) for index, one in enumerate(found)]
