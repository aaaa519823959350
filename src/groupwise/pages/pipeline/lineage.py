"""The lineage as a picture: boxes in layers, arrows from what was used to what was made of it.

Where the boxes stand is after Sugiyama, Tagawa and Toda (1981): layers by the longest way from a source, places kept
free in every layer that a long arrow crosses, heights by the mean of the neighbours. All long arrows of one source
share their places.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from statistics import fmean
from typing import NamedTuple

from groupwise.pages.lines import spread
from groupwise.pages.pipeline.data import PipelineData, Stage
from groupwise.pages.pipeline.training import held_out

Inputs = Mapping[str, Sequence[str]]
"""What each box is made of; inputs come before what is made of them."""

Place = tuple[str, int]
"""A box, or the arrow that starts at it, in a layer."""

SWEEPS = 10
STRAIGHT = 3
"""How much more a piece of a long arrow pulls for each end that is not a box, so that the arrow runs straight."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layers and heights of all boxes and of the places that long arrows cross."""

    layers: Mapping[str, int]
    heights: Mapping[Place, float]
    """From 0 (top) to `num_rows` - 1; at least 1 apart within a layer."""
    num_rows: int

    @property
    def num_layers(self) -> int:
        return max(self.layers.values()) + 1

    def way(self, source: str, target: str) -> list[Place]:
        """The places that the arrow from `source` to `target` passes, ends included."""
        span = range(self.layers[source], self.layers[target])
        return [*((source, layer) for layer in span), (target, self.layers[target])]


def layout(inputs: Inputs) -> Layout:
    """Place every box."""
    layers = layers_of(inputs)
    columns = [_column(inputs, layers, layer) for layer in range(max(layers.values()) + 1)]
    num_rows = max(len(column) for column in columns)
    draft = Layout(layers, {}, num_rows)
    ways = [draft.way(source, target) for target, sources in inputs.items() for source in sources]
    steps = {step for way in ways for step in pairwise(way)}
    return Layout(layers, _heights(columns, steps, set(layers.items())), num_rows)


def layers_of(inputs: Inputs) -> dict[str, int]:
    """The layer of each box: to the right of all its inputs, and as near to its users as to its inputs.

    >>> layers_of({"base": (), "pairs": (), "a": ("base",), "b": ("a", "pairs")})
    {'base': 0, 'pairs': 1, 'a': 1, 'b': 2}
    """
    layers: dict[str, int] = {}
    for name, sources in inputs.items():
        layers[name] = max((layers[source] + 1 for source in sources), default=0)
    for name in reversed(list(inputs)):
        users = [layers[user] for user, sources in inputs.items() if name in sources]
        if users and len(inputs[name]) <= len(users):  # more arrows become shorter than longer
            layers[name] = min(users) - 1
    return layers


def _column(inputs: Inputs, layers: Mapping[str, int], layer: int) -> list[Place]:
    """Everything in a layer: its boxes, and the long arrows that cross it."""
    ends = {
        name: max((layers[user] for user, sources in inputs.items() if name in sources), default=0) for name in inputs
    }
    return [(name, layer) for name in inputs if layers[name] == layer or layers[name] < layer < ends[name]]


def _heights(
    columns: Sequence[Sequence[Place]], steps: set[tuple[Place, Place]], boxes: set[Place]
) -> dict[Place, float]:
    """Heights by the mean of the neighbours, again and again, from left to right and back."""
    size = max(1, max(map(len, columns)) - 1)
    heights = {place: row / size for column in columns for row, place in enumerate(column)}
    neighbours: dict[Place, list[Place]] = {place: [] for place in heights}
    for start, end in sorted(steps):
        weight = STRAIGHT ** sum(place not in boxes for place in (start, end))
        neighbours[start] += [end] * weight
        neighbours[end] += [start] * weight
    for _ in range(SWEEPS):
        for column in (*columns, *reversed(columns)):
            means = [
                fmean([heights[neighbour] for neighbour in neighbours[place]] or [heights[place]]) for place in column
            ]
            heights |= dict(zip(column, spread(means, 1 / size), strict=True))
    return {place: height * size for place, height in heights.items()}


WIDTH, HEIGHT, GAP, ROW, EDGE = 130, 56, 24, 74, 4
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
    """Every box with its inputs, in order; what came from outside comes first."""
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
    method = stage.algorithm or stage.kind
    if pairs := held_out(stage):
        return f"accuracy {100 * pairs[-1]['accuracy'][0]:.1f} %"
    estimates = [
        metrics["pass_at_1"]
        for task, metrics in stage.evaluation.items()
        if task not in stage.open_ended and "pass_at_1" in metrics
    ]
    return f"{method} · {100 * estimates[0].value:.1f} %" if estimates else method.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One box, ready for the template."""

    kind: str
    title: str
    paths: tuple[str, ...]
    """Of a sheet of paper with a folded corner."""
    rounded: tuple[tuple[str, str], ...]
    """Upper left corner of a rounded box."""
    texts: tuple[tuple[str, str, str, str], ...]
    """Class, x, y and words of every line."""
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that the template draws; its colours are those of the page, its words can be selected."""

    width: int
    height: int
    in_words: str
    arrows: tuple[tuple[str, str], ...]
    """Class (`head` of an arrow's head) and path of every piece."""
    boxes: tuple[Drawn, ...]


def picture(data: PipelineData) -> Picture:
    """The whole picture."""
    nodes = boxes(data)
    inputs = {name: sources for name, (_, sources) in nodes.items()}
    grid = layout(inputs)
    return Picture(
        width=grid.num_layers * (WIDTH + GAP) - GAP + 2 * EDGE,
        height=(grid.num_rows - 1) * ROW + HEIGHT + 2 * EDGE,
        in_words=in_words(data),
        arrows=tuple(_arrows(grid, inputs)),
        boxes=tuple(_draw(box, *_corner(grid, (name, grid.layers[name]))) for name, (box, _) in nodes.items()),
    )


def in_words(data: PipelineData) -> str:
    """The lineage as one sentence, for those who cannot see it."""
    return (
        "; ".join(f"{stage.name} from {', '.join(stage.inputs)}" for stage in data.stages if stage.inputs)
        or "no stages"
    )


def _corner(grid: Layout, place: Place) -> tuple[float, float]:
    """Left upper corner of a place."""
    return EDGE + place[1] * (WIDTH + GAP), EDGE + round(grid.heights[place] * ROW, 1)


def _arrows(grid: Layout, inputs: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, str]]:
    """Every piece of every arrow once; pieces that arrows of one source share are one line."""
    pieces: dict[tuple[str, str], None] = {}
    for target, sources in inputs.items():
        for source in sources:
            way = grid.way(source, target)
            pieces |= dict.fromkeys(("", _piece(grid, *step)) for step in pairwise(way))
            pieces |= dict.fromkeys(("", _crossing(grid, place)) for place in way[1:-1])
        if sources:
            pieces["head", _head(grid, (target, grid.layers[target]))] = None
    return pieces


def _piece(grid: Layout, start: Place, end: Place) -> str:
    """From the right end of one place to the left end of the next."""
    (x, y), (to_x, to_y) = _corner(grid, start), _corner(grid, end)
    x, y, to_y = x + WIDTH, y + HEIGHT / 2, to_y + HEIGHT / 2
    middle = (x + to_x) / 2
    return f"M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"


def _crossing(grid: Layout, place: Place) -> str:
    x, y = _corner(grid, place)
    return f"M{x:g} {y + HEIGHT / 2:g}h{WIDTH}"


def _head(grid: Layout, target: Place) -> str:
    x, y = _corner(grid, target)
    return f"M{x:g} {y + HEIGHT / 2:g}l-8 -4v8z"


def _draw(box: Box, x: float, y: float) -> Drawn:
    lines = [*label_lines(box.label), box.detail]
    baseline, fold = y + HEIGHT / 2 - 8 * (len(lines) - 1) + 4, WIDTH - FOLD
    middle = f"{x + WIDTH / 2:g}"
    kinds = ["" for _ in lines[1:]] + ["detail"]
    sheet = f"M{x:g} {y:g}h{fold}l{FOLD} {FOLD}v{HEIGHT - FOLD}h-{WIDTH}z", f"M{x + fold:g} {y:g}v{FOLD}h{FOLD}"
    is_data = box.kind.startswith("data")
    return Drawn(
        kind=box.kind,
        title=f"{box.label}: {box.detail}",
        paths=sheet if is_data else (),
        rounded=() if is_data else ((f"{x:g}", f"{y:g}"),),
        texts=tuple(
            (kind, middle, f"{baseline + 15 * row:g}", line)
            for row, (kind, line) in enumerate(zip(kinds, lines, strict=True))
        ),
    )


def label_lines(label: str) -> list[str]:
    """A name in at most two lines, broken after underscores, dots and hyphens.

    >>> label_lines("preferences_harmless")
    ['preferences_', 'harmless']
    """
    parts = textwrap.wrap(re.sub(r"(?<=[-_.])", " ", label), LABEL_WIDTH, max_lines=2, placeholder="…")
    return [re.sub(r"(?<=[-_.]) ", "", part) for part in parts] or [""]
