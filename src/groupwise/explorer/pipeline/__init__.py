"""A pipeline as facts of its page, and as Markdown: tables, stages, the same problems answered by every model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from groupwise.explorer.answers import Asked, by_id, first_answer
from groupwise.explorer.pipeline.data import PipelineData, load_pipeline
from groupwise.explorer.pipeline.tables import UNMEASURED, alarms, all_tables, cost_table, description, held_out, tiles
from groupwise.explorer.table import Table
from groupwise.runs.row import Row

NUM_PROBLEMS = 3
MOST_ANSWER = 20_000
CALCULATION, GENERAL = "Calculation", "General prompt"
LANGUAGES = {"en": "In words", "zh": "In words, Chinese"}
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".txt", ".csv")
_EXPRESSION = re.compile(r"\d\s*[-+−–×·*/÷^]\s*\d")


def pipeline_facts(path: Path, pages: Mapping[Path, int]) -> dict[str, Any]:
    """The facts of a pipeline's page; `pages`: index of every run and budget that is shown, by its directory."""
    data, stages = load_pipeline(path), path / "stages"
    return {
        "description": description(data), "tiles": [tile._asdict() for tile in tiles(data)],
        "boxes": [{"name": name, **box._asdict()} for name, box in boxes(data).items()],
        "tables": [table.facts() for table in all_tables(data)],
        "stages": [
            {"name": stage.name, "state": stage.state}
            | {kind: pages.get((stages / stage.name / kind).resolve()) for kind in ("run", "budget")}
            for stage in data.stages
        ],
        "alarms": {stage.name: len(steps) for stage in data.stages if (steps := alarms(stage))},
        "problems": [asked.facts(MOST_ANSWER) for asked in same_problems(data)],
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


_SPECIAL = re.compile(r"[\\`*|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])")
"""Characters with a meaning in Markdown: an underscore only at the edge of a word, a bracket only where it may end the
text of a link."""


def markdown(data: PipelineData) -> str:
    """The whole file."""
    return f"{without_cost(data)}\n{_section(cost_table(data))}"


def without_cost(data: PipelineData) -> str:
    """Everything but the cost: the same, byte for byte, on a repeat and after an interruption."""
    nodes = boxes(data)
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    lines = ["```mermaid", "flowchart LR"]  # stadiums are models, sheets are data
    for name, box in nodes.items():
        start, end = ("[/", "/]") if box.kind.startswith("data") else ("([", "])")
        lines.append(f'  {ids[name]}{start}"{_encode(box.label)}<br/>{_encode(box.detail)}"{end}')
        lines += [f"  {ids[source]} --> {ids[name]}" for source in box.inputs]
    lineage = "\n".join([*lines, "```"]) + "\n"
    sections = []
    for asked in same_problems(data):
        reference = f"Reference answer {inline(asked.reference)}." if asked.reference else "No reference answer."
        answers = "\n".join(
            f"{inline(stage)}, {inline(answer.outcome)}: {inline(answer.evidence)} ({answer.num_tokens} tokens)\n\n"
            f"{block(answer.text)}"
            for stage, answer in asked.answers.items()
        )
        sections.append(f"### {inline(asked.question)}\n\n{inline(asked.kind)}. {reference}\n\n{answers}")
    body = "\n".join(sections) or f"{UNMEASURED}\n"
    problems = f"## The same problems\n\nThe first sample of each model.\n\n{body}"
    stages, training, *others = map(_section, all_tables(data, minutes=False))
    title = f"# {inline(data.name)}\n\n{inline(description(data))}\n"
    return "\n".join([title, lineage, stages, training, problems, *others])


def inline(text: str) -> str:
    """Any text as one line that Markdown and HTML show as it is."""
    line = _SPECIAL.sub(r"\\\g<0>", " ".join(_spell_out(text).split()))
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def block(text: str) -> str:
    """A text of several lines as a code block that it cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{_spell_out(text)}\n{fence}\n"


def _spell_out(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def _section(table: Table) -> str:
    rows = [_row([table.first, *(f"{column.group}: {column.name}".removeprefix(": ") for column in table.columns)])]
    rows.append("|---" * (len(table.columns) + 1) + "|")
    for line in table.lines:
        name = f"{line.group}: {line.name}" if line.group else line.name
        cells = [str(cell) for cell in line.cells] or [line.note, *[""] * (len(table.columns) - 1)]
        rows.append(_row([name, *cells]))
    body = "\n".join(rows) if table.lines else table.empty
    return f"## {table.title}\n\n{inline(table.note)}\n\n{body}\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(inline(cell) for cell in cells)} |"


def _encode(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _.,·%" else f"#{ord(char)};" for char in text)
