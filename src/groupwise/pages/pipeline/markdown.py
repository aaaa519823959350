"""The report as Markdown: the same tables and texts as the page, without its pictures."""

import re
from collections.abc import Sequence

from groupwise.pages.examples import Answer
from groupwise.pages.pipeline.data import PipelineData
from groupwise.pages.pipeline.lineage import boxes
from groupwise.pages.pipeline.page import Asked, same_problems
from groupwise.pages.pipeline.table import Table
from groupwise.pages.pipeline.tables import (
    UNMEASURED,
    behaviour_table,
    cost_table,
    data_table,
    description,
    lineage_table,
    stage_table,
)
from groupwise.pages.pipeline.training import alarm_table, training_table

_SPECIAL = re.compile(r"[\\`*|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])")
"""What Markdown would not take literally: an underscore at the edge of a word, a bracket that may end a link's text."""


def markdown(data: PipelineData) -> str:
    """The whole file."""
    return f"{tables(data)}\n{_section(cost_table(data))}"


def tables(data: PipelineData) -> str:
    """Everything but the cost: the same, byte for byte, on a repeat and after an interruption."""
    return "\n".join(
        [
            f"# {inline(data.name)}\n\n{inline(description(data))}\n",
            _mermaid(data),
            _section(stage_table(data, minutes=False)),
            _section(training_table(data)),
            _problems(same_problems(data)),
            _section(data_table(data)),
            _section(behaviour_table(data)),
            _section(alarm_table(data)),
            _section(lineage_table(data)),
        ]
    )


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
    """Control characters spelled out, because terminals obey them."""
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


def _mermaid(data: PipelineData) -> str:
    """The lineage as a diagram that Markdown viewers draw; stadiums are models, sheets are data."""
    nodes = boxes(data)
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    lines = []
    for name, (box, sources) in nodes.items():
        start, end = ("[/", "/]") if box.kind.startswith("data") else ("([", "])")
        lines.append(f'  {ids[name]}{start}"{_encode(box.label)}<br/>{_encode(box.detail)}"{end}')
        lines += [f"  {ids[source]} --> {ids[name]}" for source in sources]
    return "```mermaid\nflowchart LR\n" + "\n".join(lines) + "\n```\n"


def _encode(text: str) -> str:
    """Text for a label: what could mean something to the diagram becomes a number."""
    return "".join(char if char.isalnum() or char in " _.,·%" else f"#{ord(char)};" for char in text)


def _problems(problems: Sequence[Asked]) -> str:
    sections = "\n".join(_problem(problem) for problem in problems) or f"{UNMEASURED}\n"
    return f"## The same problems\n\nThe first sample of each model.\n\n{sections}"


def _problem(problem: Asked) -> str:
    reference = f"Reference answer {inline(problem.reference)}." if problem.reference else "No reference answer."
    answers = "\n".join(_answer(stage, answer) for stage, answer in problem.answers.items())
    return f"### {inline(problem.question)}\n\n{inline(problem.kind)}. {reference}\n\n{answers}"


def _answer(stage: str, answer: Answer) -> str:
    verdict = f"{inline(answer.outcome)}: {inline(answer.evidence)} ({answer.num_tokens} tokens)"
    return f"{inline(stage)}, {verdict}\n\n{block(answer.text)}"
