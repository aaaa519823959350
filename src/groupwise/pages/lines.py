"""Lines over steps, drawn without decoration: what `plots` draws with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LINE_HEIGHT = 0.175
"""Inches from one name at a line's end to the next."""


class Theme(NamedTuple):
    """Colours after Okabe and Ito, deepened or lightened until they can be read as text on their background."""

    paper: str
    ink: str
    muted: str
    grid: str
    blue: str
    orange: str
    green: str
    purple: str


LIGHT = Theme("#ffffff", "#1b1f24", "#67707b", "#e8eaed", "#0068a8", "#cc5500", "#00805c", "#a3487f")
DARK = Theme("#14171b", "#e8eaed", "#9aa3ad", "#30363d", "#62b8ee", "#f09a4a", "#3cc79b", "#e391c2")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Values over steps; None leaves a gap."""

    label: str
    steps: Sequence[int]
    values: Sequence[float | None]
    colour: str
    band: tuple[Sequence[float], Sequence[float]] | None = None
    """Lower and upper end of the interval."""
    dots: bool = False
    """Mark each value; for the few points of evaluations."""
    noisy: bool = False
    """Draw the values faintly and their moving mean over them."""


def heading(figure: Figure | SubFigure, theme: Theme, title: str, subtitle: str) -> None:
    """What a panel shows, in the part of the figure above it."""
    figure.text(0.02, 0.75, title, ha="left", va="center", fontsize=12, fontweight="bold", color=theme.ink)
    figure.text(0.02, 0.38, subtitle, ha="left", va="center", fontsize=8.5, color=theme.muted)


def panel_axes(figure: Figure | SubFigure, rows: int = 1) -> list[Axes]:
    """Axes at the same place in every panel, with room on the right for the lines' names (margins in inches)."""
    width, height = figure.bbox.width / figure.dpi, figure.bbox.height / figure.dpi
    grid = figure.add_gridspec(
        rows, 1, left=0.5 / width, right=1 - 1.25 / width, top=1 - 0.1 / height, bottom=0.48 / height, hspace=0.22
    )
    return [figure.add_subplot(grid[row, 0]) for row in range(rows)]


def draw_lines(
    axes: Axes, lines: Sequence[Line], theme: Theme, last_step: int, unit: str, is_lowest: bool = True
) -> None:
    """Draw lines with their names at their ends; `unit` is `share`, or what the numbers are."""
    curves = [line for line in lines if np.isfinite(_values(line)).any()]
    if not curves:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=theme.muted)
        return
    values = np.concatenate([_draw_line(axes, line) for line in curves])
    bottom, top = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
    # a reward can be negative or more than 1; then the numbers are not shares
    is_share = unit == "share" and bottom == 0 and top <= 1
    axes.set_ylim(1.1 * bottom, min(1.06, max(0.1, 1.1 * top)) if is_share else max(1.1 * top, 0.1))
    axes.set_xlim(0, max(1, last_step))
    _style_axes(axes, theme, is_share, is_lowest)
    _name_lines(axes, curves)


def moving_mean(values: Floats, width: int) -> Floats:
    """Centred mean over `width` values (fewer at the ends); gaps are left out, and stay gaps where nothing is near."""
    half = width // 2
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return np.array([np.nanmean(window) if np.isfinite(window).any() else math.nan for window in windows])


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights moved as little as needed to lie at least `gap` apart, in the same order, within 0 to 1 if they fit.

    >>> spread([0.5, 0.5], gap=0.5)
    [0.25, 0.75]
    """
    order = np.argsort(heights, kind="stable")
    places = np.array(heights, dtype=float)[order]
    fits = gap * (len(places) - 1) <= 1
    for _ in range(200):  # pushes neighbours apart until none overlap; a handful of names settles in a few rounds
        push = np.maximum(0.0, gap - np.diff(places)) / 2
        places[:-1] -= push
        places[1:] += push
        if fits:
            places[0], places[-1] = max(places[0], 0.0), min(places[-1], 1.0)
        if not (push > 1e-9).any():
            break
    result = np.empty_like(places)
    result[order] = places
    return [float(height) for height in result]


def _values(line: Line) -> Floats:
    return np.array([math.nan if value is None else value for value in line.values], dtype=float)


def _stroke(line: Line) -> Floats:
    """What the main stroke follows."""
    values = _values(line)
    return moving_mean(values, len(values) // 15) if line.noisy else values


def _isolated(values: Floats) -> NDArray[np.bool_]:
    """Values between two gaps, which a stroke alone would not show."""
    mask = np.concatenate([[False], np.isfinite(values), [False]])
    points: NDArray[np.bool_] = mask[1:-1] & ~mask[:-2] & ~mask[2:]
    return points


def _draw_line(axes: Axes, line: Line) -> Floats:
    """Draw one line; returns every value that must be visible."""
    values = _values(line)
    if line.band:
        axes.fill_between(line.steps, *line.band, color=line.colour, alpha=0.16, linewidth=0)
    if line.noisy:
        axes.plot(line.steps, values, color=line.colour, alpha=0.3, linewidth=0.8)
    stroke = _stroke(line)
    axes.plot(line.steps, stroke, color=line.colour, linewidth=2)
    dots = np.isfinite(stroke) if line.dots else _isolated(stroke)
    axes.plot(np.asarray(line.steps)[dots], stroke[dots], "o", color=line.colour, markersize=4.5, clip_on=False)
    return np.concatenate([values, np.asarray(line.band[1] if line.band else [], dtype=float)])


def _name_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Write each line's name to the right of its last value, moved apart where names would overlap."""
    bottom, top = axes.get_ylim()
    ends = [(_stroke(line)[np.isfinite(_values(line))][-1] - bottom) / (top - bottom) for line in lines]
    rows = max(line.label.count("\n") + 1 for line in lines)
    gap = rows * LINE_HEIGHT / (axes.bbox.height / axes.figure.dpi)
    for line, height in zip(lines, spread(ends, gap), strict=True):
        axes.annotate(
            line.label, (1, height), xycoords="axes fraction", xytext=(7, 0), textcoords="offset points",
            color=line.colour, va="center", fontsize=9, linespacing=1.1,
        )  # fmt: skip


def _style_axes(axes: Axes, theme: Theme, is_share: bool, is_lowest: bool) -> None:
    axes.set_facecolor("none")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.muted)
    axes.tick_params(colors=theme.muted, length=0, labelsize=8.5, labelbottom=is_lowest, pad=5)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    steps = [1, 2, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=steps))
    height = axes.get_position().height
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5 if height > 0.5 else 3, steps=steps))
    if is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %", decimals=0))
    if is_lowest:
        axes.set_xlabel("finished steps", color=theme.muted, fontsize=8.5)
