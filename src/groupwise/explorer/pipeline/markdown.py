"""The report of a pipeline as Markdown: the tables and texts of its page."""

import re
from collections.abc import Sequence

from groupwise.explorer.pipeline import boxes, same_problems
from groupwise.explorer.pipeline.data import PipelineData
from groupwise.explorer.pipeline.tables import UNMEASURED, all_tables, cost_table, description
from groupwise.explorer.table import Table

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
