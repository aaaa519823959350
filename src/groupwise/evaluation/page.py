"""The page of a run: one HTML file that needs nothing else, neither network nor scripts.

Everything that comes from a model, a recipe or a file is escaped by `text`; nothing else enters the page.
"""

import base64
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from groupwise import __version__
from groupwise.evaluation.behaviour import run_patterns
from groupwise.evaluation.behaviour_page import behaviour_section, second_section
from groupwise.evaluation.examples import Answer, Example, examples
from groupwise.evaluation.metrics import METRICS, NOT_MEASURED, Change, Pair, before_after, changes, show
from groupwise.evaluation.plots import PANELS, panel_svg
from groupwise.evaluation.run_data import RunData
from groupwise.evaluation.totals import best_line, costs, description, errors_line, pair_line

NUM_EXAMPLES = 3
CAPTIONS: Mapping[str, tuple[str, ...]] = {
    "learning": ("pass_at_1", "reward"),
    "behaviour": ("at_once", "works_out", "checks", "another_way", "unfinished"),
    "length": ("length",),
    "signal": ("entropy", "signal"),
}
"""Metrics that each panel shows."""


def page(run: RunData) -> str:
    """The whole page."""
    pair = before_after(run)
    rows = changes(pair, run_patterns(run)) if pair else {}
    css = resources.files("groupwise.evaluation").joinpath("report.css").read_text(encoding="utf-8")
    title = text(run.path.resolve().name)
    body = "\n".join(
        [
            f"<header><h1>{title}</h1><p>{text(description(run))}</p></header>",
            _headline(run, rows),
            f'<p class="note">{text(pair_line(run, pair))}</p>',
            _figures(run),
            _table(rows),
            second_section(run),
            behaviour_section(run),
            _examples(pair),
            _facts(run),
            _collapsed("Settings", run.config),
            _collapsed("Environment", run.environment),
            f"<footer>Written by groupwise {text(__version__)} from the files of the run directory.</footer>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title} – groupwise</title>\n<style>\n{css}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Anything as harmless text of the page."""
    return escape(str(value))


def _headline(run: RunData, rows: Mapping[str, Change]) -> str:
    tiles = [_change_tile(METRICS[key].name, rows.get(key)) for key in ("pass_at_1", "at_once", "length")]
    name, times = METRICS["time"].name, costs(run)
    tiles.append(_tile(name, times[name], times["where it went"]))
    return f'<section class="tiles">{"".join(tiles)}</section>'


def _change_tile(name: str, row: Change | None) -> str:
    if row is None:
        return _tile(name, NOT_MEASURED, "")
    before, after = (show(one, row.metric).partition(" [")[0] for one in (row.before, row.after))
    start = before.removesuffix(f" {row.metric.unit}") if row.metric.unit in after else before
    return _tile(name, f"{start} → {after}", _minus(show(row.difference, row.metric, "+")))


def _tile(name: str, value: str, detail: str) -> str:
    small = f"<small>{text(detail)}</small>" if detail != value else ""
    return f'<div class="tile"><h2>{text(name)}</h2><strong>{text(value)}</strong>{small}</div>'


def _figures(run: RunData) -> str:
    return f'<section class="figures">{"".join(_figure(run, name) for name in PANELS)}</section>'


def _figure(run: RunData, name: str) -> str:
    light, dark = (_data_uri(panel_svg(run, name, dark)) for dark in (False, True))
    metrics = [METRICS[key] for key in CAPTIONS[name]]
    meanings = " ".join(f"<b>{text(one.name)}</b>: {text(one.meaning)}" for one in metrics)
    alt = text(f"{', '.join(one.name for one in metrics)} over steps")
    panel = PANELS[name]
    return (
        f'<figure><h3>{text(panel.title)}</h3><p class="note">{text(panel.subtitle)}</p>'
        f'<picture><source srcset="{dark}" media="(prefers-color-scheme: dark)">'
        f'<img src="{light}" alt="{alt}"></picture>'
        f"<figcaption><details><summary>What is shown</summary>{meanings}</details></figcaption></figure>"
    )


def _data_uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _table(rows: Mapping[str, Change]) -> str:
    if not rows:
        return ""
    lines = "".join(
        f"<tr><th>{text(row.metric.name)}<small>{text(row.metric.meaning)}</small></th>"
        f'<td data-name="before">{_cell(show(row.before, row.metric))}</td>'
        f'<td data-name="after">{_cell(show(row.after, row.metric))}</td>'
        f'<td data-name="difference">{_cell(show(row.difference, row.metric, "+"))}</td></tr>'
        for row in rows.values()
    )
    head = "<tr><th></th><th>before</th><th>after</th><th>difference, paired by problem</th></tr>"
    return f"<section><h2>Before and after</h2><table><thead>{head}</thead><tbody>{lines}</tbody></table></section>"


def _cell(shown: str) -> str:
    value, bracket, interval = _minus(shown).partition(" [")
    return f"<span>{text(value)}</span> <small>{text(bracket.strip() + interval)}</small>"


def _minus(shown: str) -> str:
    """Numbers with the minus sign that fonts align with the plus sign."""
    return shown.replace("-", "−")


def _examples(pair: Pair | None) -> str:
    if pair is None:
        return ""
    shown = "".join(_example(one) for one in examples(pair, NUM_EXAMPLES))
    note = (
        "Picked for what changed most: they show how it changed, not how often. Each side is the first of its samples."
    )
    return f'<section><h2>The same problems, before and after</h2><p class="note">{note}</p>{shown}</section>'


def _example(example: Example) -> str:
    sides = "".join(_answer(when, side) for when, side in (("before", example.before), ("after", example.after)))
    return (
        f"<article><h3>{text(example.question)}</h3>"
        f'<p class="note">Reference answer {text(example.reference)}; {text(example.why)}.</p>'
        f'<div class="sides">{sides}</div></article>'
    )


def _answer(when: str, answer: Answer) -> str:
    kind = "right" if answer.outcome == "correct" else "wrong"
    share = f"{round(answer.share * 100)} % of {answer.num_samples} samples correct"
    return (
        f'<div class="answer"><h4>{when} <small>{text(share)}</small></h4><pre>{text(answer.text)}</pre>'
        f'<p class="{kind}"><b>{text(answer.outcome)}</b> {text(answer.evidence)} '
        f"<small>{answer.num_tokens} tokens</small></p></div>"
    )


def _facts(run: RunData) -> str:
    tokens, errors = METRICS["tokens"], METRICS["verdict_errors"]
    facts = [
        (errors.name, errors_line(run), errors.meaning),
        (tokens.name, costs(run)[tokens.name], tokens.meaning),
        (METRICS["time"].name, costs(run)[METRICS["time"].name], METRICS["time"].meaning),
        (
            "best checkpoint",
            best_line(run),
            "A Hugging Face directory; “groupwise sample” and “groupwise eval” take its path.",
        ),
    ]
    lines = "".join(
        f"<dt>{text(name)}</dt><dd>{text(value)}<small>{text(meaning)}</small></dd>" for name, value, meaning in facts
    )
    return f"<section><h2>The run</h2><dl>{lines}</dl></section>"


def _collapsed(name: str, values: Mapping[str, Any]) -> str:
    flat = _flatten(values)
    lines = "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in flat.items())
    return f'<details class="settings"><summary>{text(name)}</summary><dl>{lines or NOT_MEASURED}</dl></details>'


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = (
                value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            )
    return flat
