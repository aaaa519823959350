"""A table of the report as HTML."""

from collections.abc import Iterable
from itertools import groupby

from groupwise.audit.page import text
from groupwise.evaluation.pipeline_report.table import Cell, Column, Line, Table


def scroll(name: str, inside: str) -> str:
    """A box of its own that scrolls where the window is too narrow; the keyboard reaches it."""
    return f'<div class="scroll" role="region" aria-label="{text(name)}" tabindex="0">{inside}</div>'


def section(table: Table, kind: str = "", more: str = "") -> str:
    """A table under its title; `kind` is its class, `more` is HTML that follows it."""
    shown = table_html(table, kind) if table.lines else f'<p class="note">{text(table.empty)}</p>'
    head = f'<h2>{text(table.title)}</h2><p class="note">{text(table.note)}</p>'
    return f"<section>{head}{shown}{_meanings(table)}{more}</section>"


def _meanings(table: Table) -> str:
    told = "".join(f"<li>{text(column.meaning)}</li>" for column in table.columns if column.meaning)
    return f'<details class="told"><summary>What is shown</summary><ul>{told}</ul></details>' if told else ""


def table_html(table: Table, kind: str = "") -> str:
    """The table alone."""
    first = f'<th rowspan="2">{text(table.first)}</th>' if _is_grouped(table) else f"<th>{text(table.first)}</th>"
    heads = "".join(
        f'<th scope="col"{_starts(column, before)}>{text(column.name)}</th>' for column, before in _pairs(table)
    )
    rows = f"<tr>{first}{_groups(table)}</tr><tr>{heads}</tr>" if _is_grouped(table) else f"<tr>{first}{heads}</tr>"
    lines = "".join(_body(table))
    shown = f'<table class="{kind}"><thead>{rows}</thead><tbody>{lines}</tbody></table>'
    return scroll(table.title, shown)


def _is_grouped(table: Table) -> bool:
    return any(column.group for column in table.columns)


def _groups(table: Table) -> str:
    groups = [(name, len(list(columns))) for name, columns in groupby(table.columns, lambda column: column.group)]
    return "".join(f'<th scope="colgroup" class="group" colspan="{size}">{text(name)}</th>' for name, size in groups)


def _pairs(table: Table) -> Iterable[tuple[Column, Column | None]]:
    """Each column with the one before it."""
    return zip(table.columns, (None, *table.columns), strict=False)


def _starts(column: Column, before: Column | None) -> str:
    """Where a group begins there is more room."""
    return ' class="starts"' if column.group and (before is None or before.group != column.group) else ""


def _body(table: Table) -> Iterable[str]:
    for group, lines in groupby(table.lines, lambda line: line.group):
        if group:
            yield f'<tr class="group"><th scope="rowgroup" colspan="{len(table.columns) + 1}">{text(group)}</th></tr>'
        yield from (_line(table, line) for line in lines)


def _line(table: Table, line: Line) -> str:
    about = f"<small>{text(line.about)}</small>" if line.about else ""
    name = f'<th scope="row">{text(line.name)}{about}</th>'
    if line.note:
        return f'<tr class="waiting">{name}<td colspan="{len(table.columns)}">{text(line.note)}</td></tr>'
    pairs = zip(line.cells, _pairs(table), strict=True)
    return f"<tr>{name}{''.join(f'<td{_starts(*pair)}>{_cell(cell)}</td>' for cell, pair in pairs)}</tr>"


def _cell(cell: Cell) -> str:
    mark = f'<b class="mark">{text(cell.mark)}</b>' if cell.mark else ""
    interval = f"<small>{text(cell.interval)}</small>" if cell.interval else ""
    return f"{text(cell.value)}{mark}{interval}"
