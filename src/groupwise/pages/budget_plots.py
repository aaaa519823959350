"""Accuracy over tokens, drawn like the lines of a run; the axis of tokens is logarithmic."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.test_time.result import Point
from groupwise.pages.budget_names import Look
from groupwise.pages.lines import DARK, LIGHT, LINE_HEIGHT, Theme, panel_axes, spread
from groupwise.pages.plots import PANEL_SIZE, encode_figure, style


class Curve(NamedTuple):
    """A method over its budgets."""

    name: str
    look: Look
    tokens: list[float]
    """Sampled per problem, increasing."""
    accuracy: list[Estimate]


def curves(
    points: Sequence[Point], methods: Mapping[str, tuple[str, Look]], difficulty: str | None = None
) -> list[Curve]:
    """The curves of methods that were measured, of all problems or of those of one difficulty."""
    found = []
    for method, (name, look) in methods.items():
        own = sorted((one for one in points if one.method == method), key=lambda one: one.policy_tokens)
        values = [one.accuracy if difficulty is None else one.by_difficulty[difficulty] for one in own]
        if own:
            found.append(Curve(name, look, [one.policy_tokens for one in own], values))
    return found


def svg(some: Sequence[Curve], dark: bool = False) -> bytes:
    """A picture of curves, as an SVG with a transparent background."""
    theme = DARK if dark else LIGHT
    with style():
        figure = Figure(figsize=PANEL_SIZE, facecolor="none")
        (axes,) = panel_axes(figure)
        for curve in some:
            _draw(axes, curve, theme)
        _style(axes, theme)
        _name(axes, some, theme)
        return encode_figure(figure, "svg", metadata={"Date": None})


def _draw(axes: Axes, curve: Curve, theme: Theme) -> None:
    colour, line = getattr(theme, curve.look[0]), curve.look[1]
    values = [one.value for one in curve.accuracy]
    axes.plot(curve.tokens, values, line, color=colour, linewidth=1.8, marker="o", markersize=3.2, clip_on=False)
    if line == "-":
        low, high = ([one[end] for one in curve.accuracy] for end in (1, 2))
        axes.fill_between(curve.tokens, low, high, color=colour, alpha=0.12, linewidth=0)


def _style(axes: Axes, theme: Theme) -> None:
    axes.set_facecolor("none")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.muted)
    axes.tick_params(colors=theme.muted, which="both", length=0, labelsize=8.5, pad=5)
    axes.grid(axis="y", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %", decimals=0))
    axes.set_xlabel("tokens sampled per problem", color=theme.muted, fontsize=8.5)


def _name(axes: Axes, some: Sequence[Curve], theme: Theme) -> None:
    if not some:
        return
    ends = [curve.accuracy[-1].value / 1.02 for curve in some]
    gap = LINE_HEIGHT / (axes.bbox.height / axes.figure.dpi)
    for curve, height in zip(some, spread(ends, gap), strict=True):
        axes.annotate(
            curve.name, (1, height), xycoords="axes fraction", xytext=(7, 0), textcoords="offset points",
            color=getattr(theme, curve.look[0]), va="center", fontsize=9,
        )  # fmt: skip
