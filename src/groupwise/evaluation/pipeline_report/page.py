"""The report as one HTML file that needs nothing else, neither network nor scripts.

Everything that comes from a model, a recipe or a file is escaped by `text`; nothing else enters the page.
"""

import base64
import math
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import groupby

from groupwise import __version__
from groupwise.audit.page import document, text
from groupwise.evaluation.examples import Answer
from groupwise.evaluation.pipeline_report.curves import Curve, curves
from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.picture import lineage_svg
from groupwise.evaluation.pipeline_report.problems import Asked, same_problems
from groupwise.evaluation.pipeline_report.records import (
    Bar,
    alarm_table,
    bars,
    cost_table,
    data_stages,
    data_table,
    description,
    lineage_table,
    num_alarms,
    training_table,
)
from groupwise.evaluation.pipeline_report.stages import behaviour_table, stage_table
from groupwise.evaluation.pipeline_report.table import Cell, Column, Line, Table
from groupwise.evaluation.pipeline_report.tiles import Tile, tiles


def page(data: PipelineData) -> str:
    """The whole page."""
    body = "\n".join(
        [
            f"<header><h1>{text(data.name)}</h1><p>{text(description(data))}</p></header>",
            f'<section class="tiles">{"".join(map(_tile, tiles(data)))}</section>',
            _warning(data),
            _lineage(data),
            _section(stage_table(data), "numbers"),
            _training(data),
            _problems(data),
            _data(data),
            _section(behaviour_table(data), "meanings"),
            _section(alarm_table(data)),
            _section(cost_table(data), "numbers"),
            _collapsed("Fingerprints", _table(lineage_table(data))),
            _collapsed("Settings (pipeline.toml)", f"<pre>{text(data.recipe or 'not there')}</pre>"),
            f"<footer>Written by groupwise {text(__version__)} from the files of the pipeline directory.</footer>",
        ]
    )
    return document(data.name, body, _css())


def _css() -> str:
    """The style of all reports, and what this one adds to it."""
    evaluation = resources.files("groupwise.evaluation")
    paths = evaluation.joinpath("report.css"), evaluation.joinpath("pipeline_report", "pipeline.css")
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def _tile(tile: Tile) -> str:
    return (
        f'<div class="tile"><h2>{text(tile.name)}</h2><strong>{text(tile.value)}</strong>'
        f"<small>{text(tile.detail)}</small></div>"
    )


def _warning(data: PipelineData) -> str:
    found = num_alarms(data)
    if not found:
        return ""
    where = ", ".join(f"{name} ({count})" for name, count in found.items())
    return f'<p class="warning"><b>Alarms of reward hacking</b> in {text(where)}; see “Alarms” below.</p>'


def _lineage(data: PipelineData) -> str:
    note = (
        "Round boxes are models, with their pass@1; sheets are data. An arrow leads from what was used to what was "
        "made of it. Dashed: not finished, or from outside."
    )
    return f'<section><h2>Lineage</h2><p class="note">{note}</p>{_scroll("Lineage", lineage_svg(data))}</section>'


def _scroll(name: str, inside: str) -> str:
    """A box of its own that scrolls where the window is too narrow; the keyboard reaches it."""
    return f'<div class="scroll" role="region" aria-label="{text(name)}" tabindex="0">{inside}</div>'


def _section(table: Table, kind: str = "") -> str:
    shown = _table(table, kind) if table.lines else '<p class="note">Nothing to show.</p>'
    return f'<section><h2>{text(table.title)}</h2><p class="note">{text(table.note)}</p>{shown}{_meanings(table)}</section>'


def _meanings(table: Table) -> str:
    told = "".join(f"<li>{text(column.meaning)}</li>" for column in table.columns if column.meaning)
    return f'<details class="told"><summary>What is shown</summary><ul>{told}</ul></details>' if told else ""


def _table(table: Table, kind: str = "") -> str:
    first = f'<th rowspan="2">{text(table.first)}</th>' if _is_grouped(table) else f"<th>{text(table.first)}</th>"
    heads = "".join(f'<th scope="col"{_starts(column, before)}>{text(column.name)}</th>' for column, before in _pairs(table))
    rows = (f"<tr>{first}{_groups(table)}</tr><tr>{heads}</tr>") if _is_grouped(table) else f"<tr>{first}{heads}</tr>"
    lines = "".join(_body(table))
    shown = f'<table class="{kind}"><thead>{rows}</thead><tbody>{lines}</tbody></table>'
    return _scroll(table.title, shown)


def _is_grouped(table: Table) -> bool:
    return any(column.group for column in table.columns)


def _groups(table: Table) -> str:
    groups = [(name, len(list(columns))) for name, columns in groupby(table.columns, lambda column: column.group)]
    return "".join(f'<th scope="colgroup" class="group" colspan="{size}">{text(name)}</th>' for name, size in groups)


def _pairs(table: Table) -> Iterable[tuple[Column, Column | None]]:
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


def _training(data: PipelineData) -> str:
    shown = "".join(_figure(stage, curve) for stage in data.stages for curve in curves(stage))
    table = _section(training_table(data)).removesuffix("</section>")
    return f'{table}<div class="figures">{shown}</div></section>'


def _figure(stage: Stage, curve: Curve) -> str:
    light, dark = (f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (curve.light, curve.dark))
    return (
        f'<figure><h3>{text(stage.name)}: {text(curve.title.lower())}</h3><p class="note">{text(curve.subtitle)}</p>'
        f'<picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        f'<img src="{light}" alt="{text(curve.title)} of {text(stage.name)} over steps"></picture></figure>'
    )


def _problems(data: PipelineData) -> str:
    asked = same_problems(data)
    note = (
        "The first sample of each model. The problems are the first of their kind that all models were asked: chosen "
        "by their place, not by the answers."
        if asked
        else "No model has been evaluated yet."
    )
    shown = "".join(map(_problem, asked))
    return f'<section><h2>The same problems</h2><p class="note">{note}</p>{shown}</section>'


def _problem(asked: Asked) -> str:
    answers = "".join(_answer(stage, answer) for stage, answer in asked.answers.items())
    reference = f"reference answer {asked.reference}" if asked.reference else "no reference answer"
    return (
        f'<article class="asked"><h3>{text(asked.question)}</h3><p class="note">{text(asked.kind.capitalize())}; '
        f'{text(reference)}.</p><div class="answers">{answers}</div></article>'
    )


def _answer(stage: str, answer: Answer) -> str:
    kind = "right" if answer.outcome == "correct" else "wrong"
    share = "" if math.isnan(answer.share) else f"{100 * answer.share:.0f} % of {answer.num_samples} correct"
    thought, end, rest = answer.text.rpartition("</think>")
    return (
        f'<div class="answer"><h4>{text(stage)} <small>{share}</small></h4>'
        f"<pre><span>{text(thought + end)}</span>{text(rest)}</pre>"
        f'<p class="{kind}"><b>{text(answer.outcome)}</b> {text(answer.evidence)} '
        f"<small>{answer.num_tokens} tokens</small></p></div>"
    )


def _data(data: PipelineData) -> str:
    shown = "".join(_data_stage(stage) for stage in data_stages(data))
    note = data_table(data).note if shown else "This pipeline collects no data."
    return f'<section><h2>Data</h2><p class="note">{text(note)}</p><div class="sets">{shown}</div></section>'


def _data_stage(stage: Stage) -> str:
    kind = text(stage.kind.replace("_", " "))
    found = bars(stage)
    groups = "".join(_bars(group, list(some)) for group, some in groupby(found, lambda bar: bar.group))
    inside = groups or f'<p class="note">{text(stage.state)}</p>'
    return f'<article class="set"><h3>{text(stage.name)} <small>{kind}</small></h3>{inside}</article>'


def _bars(group: str, some: Sequence[Bar]) -> str:
    title = f"<h4>{text(group)}</h4>" if group else ""
    return f'{title}<dl class="bars">{"".join(map(_bar, some))}</dl>'


def _bar(bar: Bar) -> str:
    drawn = "" if bar.share is None else f'<i style="width:{100 * bar.share:.1f}%"></i>'
    name = text(bar.name.replace("_", " "))
    return f'<dt>{name}</dt><dd><span>{drawn}</span>{text(bar.value)}</dd>'


def _collapsed(name: str, inside: str) -> str:
    return f'<details class="settings"><summary>{text(name)}</summary>{inside}</details>'
