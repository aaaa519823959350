"""The lineage as an SVG inside the page: boxes in layers, arrows from what was used to what was made of it."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.lineage import Layout, Place, layout
from groupwise.evaluation.pipeline_report.stages import GENERAL
from groupwise.evaluation.pipeline_report.training import held_out

WIDTH, HEIGHT, GAP, ROW, EDGE = 112, 56, 24, 74, 4
"""Pixels of a box, between two layers, from row to row, and around everything."""
FOLD = 12
LABEL_WIDTH = 14
"""Characters of a label's line."""
DATA_SUFFIXES = (".jsonl", ".json", ".parquet", ".txt", ".csv")


class Box(NamedTuple):
    """What a box says."""

    label: str
    detail: str
    kind: str
    """Its classes: `model` or `data`; `scores` of a reward model; `outside`; `waiting` where it is not finished."""


def boxes(data: PipelineData) -> dict[str, tuple[Box, tuple[str, ...]]]:
    """Every box with its inputs, in order; what came from outside stands first."""
    names = {stage.name for stage in data.stages}
    outside = {name: (_outside(name), ()) for stage in data.stages for name in stage.inputs if name not in names}
    return {**outside, **{stage.name: (_box(stage), stage.inputs) for stage in data.stages}}


def _outside(path: str) -> Box:
    kind = "data" if path.endswith(DATA_SUFFIXES) else "model"
    return Box(PurePath(path).name or path, "from outside", f"{kind} outside")


def _box(stage: Stage) -> Box:
    kind = {"data": "data", "reward_model": "model scores"}.get(stage.makes, "model")
    if stage.state != "finished":
        return Box(stage.name, stage.state, f"{kind} waiting")
    return Box(stage.name, _detail(stage), kind)


def _detail(stage: Stage) -> str:
    """The one number of a finished stage."""
    if stage.makes == "data":
        return f"{stage.statistics['rows']:,} rows" if "rows" in stage.statistics else stage.kind.replace("_", " ")
    how = stage.algorithm or stage.kind
    if pairs := held_out(stage):
        return f"accuracy {100 * pairs[-1]['accuracy'][0]:.1f} %"
    solved = [
        found["pass_at_1"] for task, found in stage.evaluation.items() if task != GENERAL and "pass_at_1" in found
    ]
    return f"{how} · {100 * solved[0].value:.1f} %" if solved else how.replace("_", " ")


def lineage_svg(data: PipelineData) -> str:
    """The whole picture; its colours are those of the page, its words can be selected."""
    found = boxes(data)
    inputs = {name: sources for name, (_, sources) in found.items()}
    placed = layout(inputs)
    width = placed.num_layers * (WIDTH + GAP) - GAP + 2 * EDGE
    height = (placed.num_rows - 1) * ROW + HEIGHT + 2 * EDGE
    arrows = "".join(_arrows(placed, inputs))
    drawn = "".join(_drawn(box, *_corner(placed, (name, placed.layers[name]))) for name, (box, _) in found.items())
    return (
        f'<svg class="lineage" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'aria-label="{escape(in_words(data))}"><g class="arrows">{arrows}</g>{drawn}</svg>'
    )


def in_words(data: PipelineData) -> str:
    """The lineage as one sentence, for those who cannot see it."""
    return (
        "; ".join(f"{stage.name} from {', '.join(stage.inputs)}" for stage in data.stages if stage.inputs)
        or "no stages"
    )


def _corner(placed: Layout, place: Place) -> tuple[float, float]:
    """Left upper corner of a place."""
    return EDGE + place[1] * (WIDTH + GAP), EDGE + round(placed.heights[place] * ROW, 1)


def _arrows(placed: Layout, inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Every piece of every arrow once; pieces that arrows of one source share are one line."""
    pieces: dict[str, None] = {}
    for target, sources in inputs.items():
        for source in sources:
            way = placed.way(source, target)
            pieces |= dict.fromkeys(_piece(placed, *step) for step in pairwise(way))
            pieces |= dict.fromkeys(_across(placed, place) for place in way[1:-1])
        if sources:
            pieces[_head(placed, (target, placed.layers[target]))] = None
    return list(pieces)


def _piece(placed: Layout, left: Place, right: Place) -> str:
    """From the right end of one place to the left end of the next."""
    (x, y), (to_x, to_y) = _corner(placed, left), _corner(placed, right)
    x, y, to_y = x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2
    middle = (x + to_x) / 2
    return f'<path d="M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"/>'


def _across(placed: Layout, place: Place) -> str:
    x, y = _corner(placed, place)
    return f'<path d="M{x:g} {y + HEIGHT / 2:g}h{WIDTH}"/>'


def _head(placed: Layout, target: Place) -> str:
    x, y = _corner(placed, target)
    return f'<path class="head" d="M{x:g} {y + HEIGHT / 2:g}l-8 -4v8z"/>'


def _drawn(box: Box, x: float, y: float) -> str:
    lines = label_lines(box.label)
    first = y + HEIGHT / 2 - 8 * len(lines) + 4
    words = [
        f'<text x="{x + WIDTH / 2:g}" y="{first + 15 * i:g}">{escape(line)}</text>' for i, line in enumerate(lines)
    ]
    below = f'<text class="detail" x="{x + WIDTH / 2:g}" y="{first + 15 * len(lines):g}">{escape(box.detail)}</text>'
    shape = _sheet(x, y) if box.kind.startswith("data") else _rounded(x, y)
    name = f"<title>{escape(box.label)}: {escape(box.detail)}</title>"
    return f'<g class="{box.kind}">{name}{shape}{"".join(words)}{below}</g>'


def _rounded(x: float, y: float) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="14"/>'


def _sheet(x: float, y: float) -> str:
    """A sheet of paper with a folded corner."""
    flat = WIDTH - FOLD
    return (
        f'<path d="M{x:g} {y:g}h{flat}l{FOLD} {FOLD}v{HEIGHT - FOLD}h-{WIDTH}z"/>'
        f'<path d="M{x + flat:g} {y:g}v{FOLD}h{FOLD}"/>'
    )


def label_lines(label: str) -> list[str]:
    """A name in at most two lines, broken after underscores, dots and hyphens.

    >>> label_lines("preferences_harmless")
    ['preferences_', 'harmless']
    """
    parts = textwrap.wrap(re.sub(r"(?<=[-_.])", " ", label), LABEL_WIDTH, max_lines=2, placeholder="…")
    return [re.sub(r"(?<=[-_.]) ", "", part) for part in parts] or [""]
