"""The report as Markdown: the same tables and texts as the page, without its pictures."""

import re
from collections.abc import Sequence

from groupwise.pages.examples import Answer
from groupwise.pages.pipeline.data import PipelineData
from groupwise.pages.pipeline.lineage import boxes
from groupwise.pages.pipeline.page import Asked, same_problems
from groupwise.pages.pipeline.table import Line, Table
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

_MEANT = re.compile(r"[\\`*|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])")
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
    shown = _MEANT.sub(r"\\\g<0>", " ".join(_plain(text).split()))
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def block(text: str) -> str:
    """A text of several lines as a code block that it cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{_plain(text)}\n{fence}\n"


def _plain(text: str) -> str:
    """Control characters spelled out, because terminals obey them."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def _section(table: Table) -> str:
    rows = [_row([table.first, *(f"{column.group}: {column.name}".removeprefix(": ") for column in table.columns)])]
    rows.append("|---" * (len(table.columns) + 1) + "|")
    rows += [_row([_name(line), *_cells(line, len(table.columns))]) for line in table.lines]
    body = "\n".join(rows) if table.lines else table.empty
    return f"## {table.title}\n\n{inline(table.note)}\n\n{body}\n"


def _name(line: Line) -> str:
    return f"{line.group}: {line.name}" if line.group else line.name


def _cells(line: Line, count: int) -> list[str]:
    return [str(cell) for cell in line.cells] or [line.note, *[""] * (count - 1)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(inline(cell) for cell in cells)} |"


def _mermaid(data: PipelineData) -> str:
    """The lineage as a diagram that Markdown viewers draw; stadiums are models, sheets are data."""
    found = boxes(data)
    ids = {name: f"n{number}" for number, name in enumerate(found)}
    shown = []
    for name, (box, sources) in found.items():
        opened, closed = ("[/", "/]") if box.kind.startswith("data") else ("([", "])")
        shown.append(f'  {ids[name]}{opened}"{_coded(box.label)}<br/>{_coded(box.detail)}"{closed}')
        shown += [f"  {ids[source]} --> {ids[name]}" for source in sources]
    return "```mermaid\nflowchart LR\n" + "\n".join(shown) + "\n```\n"


def _coded(text: str) -> str:
    """Text for a label: what could mean something to the diagram becomes a number."""
    return "".join(char if char.isalnum() or char in " _.,·%" else f"#{ord(char)};" for char in text)


def _problems(asked: Sequence[Asked]) -> str:
    shown = "\n".join(_problem(one) for one in asked) or f"{UNMEASURED}\n"
    return f"## The same problems\n\nThe first sample of each model.\n\n{shown}"


def _problem(asked: Asked) -> str:
    reference = f"Reference answer {inline(asked.reference)}." if asked.reference else "No reference answer."
    answers = "\n".join(_answer(stage, answer) for stage, answer in asked.answers.items())
    return f"### {inline(asked.question)}\n\n{inline(asked.kind)}. {reference}\n\n{answers}"


def _answer(stage: str, answer: Answer) -> str:
    verdict = f"{inline(answer.outcome)}: {inline(answer.evidence)} ({answer.num_tokens} tokens)"
    return f"{inline(stage)}, {verdict}\n\n{block(answer.text)}"
