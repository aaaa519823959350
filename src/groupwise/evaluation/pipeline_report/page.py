"""The report as one HTML file that needs nothing else, neither network nor scripts.

Everything that comes from a model, a recipe or a file is escaped by `text`; nothing else enters the page.
"""

import base64
import math
from collections.abc import Sequence
from importlib import resources
from itertools import groupby

from groupwise import __version__
from groupwise.audit.page import document, text
from groupwise.evaluation.examples import Answer
from groupwise.evaluation.pipeline_report.alarms import alarm_table, num_alarms
from groupwise.evaluation.pipeline_report.collected import Bar, bars, data_stages, data_table
from groupwise.evaluation.pipeline_report.curves import Curve, curves
from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.html_table import scroll, section, table_html
from groupwise.evaluation.pipeline_report.picture import lineage_svg
from groupwise.evaluation.pipeline_report.problems import ANSWERED, Asked, same_problems
from groupwise.evaluation.pipeline_report.stages import UNMEASURED, behaviour_table, stage_table
from groupwise.evaluation.pipeline_report.tiles import Tile, tiles
from groupwise.evaluation.pipeline_report.totals import cost_table, description, lineage_table
from groupwise.evaluation.pipeline_report.training import training_table
from groupwise.types import Outcome


def page(data: PipelineData) -> str:
    """The whole page."""
    body = "\n".join(
        [
            f"<header><h1>{text(data.name)}</h1><p>{text(description(data))}</p></header>",
            f'<section class="tiles">{"".join(map(_tile, tiles(data)))}</section>',
            _warning(data),
            _lineage(data),
            section(stage_table(data), "numbers"),
            _training(data),
            _problems(data),
            _data(data),
            section(behaviour_table(data), "meanings"),
            section(alarm_table(data)),
            section(cost_table(data), "numbers"),
            _collapsed("Fingerprints", table_html(lineage_table(data))),
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
        "Round boxes are models with their pass@1 (green: reward models with their accuracy on held-out pairs), sheets "
        "are data. An arrow leads from what was used to what was made of it. Dashed: not finished, or from outside."
    )
    return f'<section><h2>Lineage</h2><p class="note">{note}</p>{scroll("Lineage", lineage_svg(data))}</section>'


def _training(data: PipelineData) -> str:
    drawn = [(stage, curves(stage)) for stage in data.stages]
    drawn.sort(key=lambda one: -len(one[1]))  # reinforcement learning, with two panels, begins a line
    shown = "".join(_figure(stage, curve) for stage, some in drawn for curve in some)
    return section(training_table(data), more=f'<div class="figures">{shown}</div>' if shown else "")


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
        else UNMEASURED
    )
    shown = "".join(map(_problem, asked))
    return f'<section><h2>The same problems</h2><p class="note">{note}</p>{shown}</section>'


def _problem(asked: Asked) -> str:
    answers = "".join(_answer(stage, answer) for stage, answer in asked.answers.items())
    reference = f"reference answer {asked.reference}" if asked.reference else "no reference answer"
    return (
        f'<article class="asked"><h3>{text(asked.question)}</h3><p class="note">{text(asked.kind)}; '
        f'{text(reference)}.</p><div class="answers">{answers}</div></article>'
    )


def _answer(stage: str, answer: Answer) -> str:
    kind = {Outcome.CORRECT: "right", ANSWERED: "open"}.get(answer.outcome, "wrong")
    share = "" if math.isnan(answer.share) else f"{100 * answer.share:.0f} % of {answer.num_samples} correct"
    thought, end, rest = answer.text.rpartition("</think>")
    return (
        f'<div class="answer"><h4>{text(stage)} <small>{share}</small></h4>'
        f"<pre><span>{text(thought + end)}</span>{text(rest)}</pre>"
        f'<p class="{kind}"><b>{text(answer.outcome)}</b> {text(answer.evidence)} '
        f"<small>{answer.num_tokens} tokens</small></p></div>"
    )


def _data(data: PipelineData) -> str:
    shown, table = "".join(_data_stage(stage) for stage in data_stages(data)), data_table(data)
    note = table.note if shown else table.empty
    return f'<section><h2>Data</h2><p class="note">{text(note)}</p><div class="sets">{shown}</div></section>'


def _data_stage(stage: Stage) -> str:
    kind = text(stage.kind.replace("_", " "))
    found = bars(stage)
    groups = "".join(_bars(group, list(some)) for group, some in groupby(found, lambda bar: bar.group))
    inside = groups or f'<p class="note">{text(stage.state)}</p>'
    return f'<article class="set"><h3>{text(stage.name)} <small>{kind}</small></h3>{inside}</article>'


def _bars(group: str, some: Sequence[Bar]) -> str:
    title = f"<h4>{text(group)}</h4>" if group else ""
    kind = f" {group}" if group in ("kept", "dropped") else ""
    return f'{title}<dl class="bars{kind}">{"".join(map(_bar, some))}</dl>'


def _bar(bar: Bar) -> str:
    drawn = "" if bar.share is None else f'<i style="width:{100 * bar.share:.1f}%"></i>'
    name = text(bar.name.replace("_", " "))
    return f"<dt>{name}</dt><dd><span>{drawn}</span>{text(bar.value)}</dd>"


def _collapsed(name: str, inside: str) -> str:
    return f'<details class="settings"><summary>{text(name)}</summary>{inside}</details>'
