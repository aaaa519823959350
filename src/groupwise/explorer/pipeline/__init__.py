"""A pipeline as facts of its page: its tables, its stages in order, and the same problems answered by every model."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from groupwise.explorer.answers import Asked, by_id, first_answer
from groupwise.explorer.pipeline.data import PipelineData, load_pipeline
from groupwise.explorer.pipeline.tables import all_tables, description, held_out, num_alarms, tiles
from groupwise.runs.row import Row

NUM_PROBLEMS = 3
MOST_ANSWER = 20_000
CALCULATION, GENERAL = "Calculation", "General prompt"
LANGUAGES = {"en": "In words", "zh": "In words, Chinese"}
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".txt", ".csv")
_EXPRESSION = re.compile(r"\d\s*[-+−–×·*/÷^]\s*\d")


def pipeline_facts(path: Path, runs: Mapping[Path, int]) -> dict[str, Any]:
    """The facts of a pipeline's page; `runs`: index of every run that is shown, by its directory."""
    data = load_pipeline(path)
    return {
        "description": description(data), "tiles": [tile._asdict() for tile in tiles(data)],
        "boxes": [{"name": name, **box._asdict()} for name, box in boxes(data).items()],
        "tables": [table.facts() for table in all_tables(data)],
        "stages": [
            {
                "name": stage.name, "state": stage.state,
                "run": runs.get((path / "stages" / stage.name / "run").resolve()),
            }
            for stage in data.stages
        ],
        "alarms": num_alarms(data), "problems": [asked.facts(MOST_ANSWER) for asked in same_problems(data)],
        "recipe": data.recipe, "done": all(stage.state in ("finished", "not measured") for stage in data.stages),
    }  # fmt: skip


class Box(NamedTuple):
    """A stage, or something from outside, in the picture of the lineage."""

    label: str
    detail: str
    kind: str
    """Its classes: `model` or `data`; `scores` of a reward model; `outside`; `waiting` where it is not finished."""
    inputs: tuple[str, ...]


def boxes(data: PipelineData) -> dict[str, Box]:
    """Every box by its name, in order; what came from outside comes first."""
    names = {stage.name for stage in data.stages}
    found = {}
    for name in (name for stage in data.stages for name in stage.inputs if name not in names):
        kind = "data" if name.endswith(DATA_SUFFIXES) else "model"
        found[name] = Box(PurePath(name).name or name, "from outside", f"{kind} outside", ())
    for stage in data.stages:
        kind = {"data": "data", "reward_model": "model scores"}.get(stage.makes, "model")
        is_done = stage.state == "finished"
        detail, method = stage.state, stage.algorithm or stage.kind
        if is_done:
            judged = [metrics for task, metrics in stage.evaluation.items() if task not in stage.open_ended]
            solved = [metrics["pass_at_1"].value for metrics in judged if "pass_at_1" in metrics]
            if stage.makes == "data":
                rows = stage.statistics.get("rows")
                detail = stage.kind.replace("_", " ") if rows is None else f"{rows:,} rows"
            elif pairs := held_out(stage):
                detail = f"accuracy {100 * pairs[-1]['accuracy'][0]:.1f} %"
            else:
                detail = f"{method} · {100 * solved[0]:.1f} %" if solved else method.replace("_", " ")
        found[stage.name] = Box(stage.name, detail, kind if is_done else f"{kind} waiting", stage.inputs)
    return found


def same_problems(data: PipelineData) -> list[Asked]:
    """Three problems that all evaluated models were asked, of different kinds where possible, and a general prompt."""
    stages = {stage.name: by_id(stage.completions) for stage in data.policies if stage.completions}
    if not stages:
        return []
    completions = next(iter(stages.values()))
    common = [problem for problem in completions if all(problem in rows for rows in stages.values())]
    kinds = {problem: kind_of(completions[problem][0]) for problem in common}
    found = []
    for problem in choose(kinds):
        first = completions[problem][0]
        answers = {name: first_answer(rows[problem]) for name, rows in stages.items()}
        reference = "" if kinds[problem] == GENERAL else first.reference
        found.append(Asked(kinds[problem], first.question, reference, answers))
    return found


def choose(kinds: Mapping[str, str]) -> list[str]:
    """The first problem of each kind, calculations first, filled up with the next ones; a general prompt comes last.

    >>> choose({"a": "In words", "b": GENERAL, "c": "In words", "d": CALCULATION, "e": GENERAL})
    ['d', 'a', 'c', 'b']
    """
    reasoning = sorted(
        (problem for problem in kinds if kinds[problem] != GENERAL), key=lambda problem: kinds[problem] != CALCULATION
    )
    firsts = {kinds[problem]: problem for problem in reversed(reasoning)}
    order = sorted(reasoning, key=lambda problem: firsts[kinds[problem]] != problem)
    return order[:NUM_PROBLEMS] + [problem for problem in kinds if kinds[problem] == GENERAL][:1]


def kind_of(row: Row) -> str:
    """The kind of problem that a completion answers."""
    if row.open_ended:
        return GENERAL
    if _EXPRESSION.search(row.question):
        return CALCULATION
    language = row.language or "en"
    return LANGUAGES.get(language, f"In words, {language}")
