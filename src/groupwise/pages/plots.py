"""A run as pictures: what it can do, how long it writes, how much there is left to learn, how it goes about it.

`PANELS` lists the panels, each drawn by one function `draw_*(figure, run, theme)`. Colour-blind readers can
tell the colours apart, and every line carries its name at its end, so no legend is needed. No display is needed and no
global state is used.
"""

import io
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure, SubFigure

from groupwise.evaluation.behaviour import Behaviour, behaviour_shares, run_patterns
from groupwise.evaluation.run_data import RunData
from groupwise.evaluation.siblings import band
from groupwise.pages.lines import DARK, LIGHT, Line, Theme, draw_lines, heading, panel_axes
from groupwise.runs.atomic import write_file

WIDTH, HEIGHT, DPI = 11.0, 7.4, 146
"""Inches of the whole picture; with these it is about 1600 pixels wide."""

PANEL_SIZE = (4.7, 3.0)
"""Inches of one panel on a page; small, so that its words can be read on a phone."""


def draw_learning(figure: Figure | SubFigure, run: RunData, theme: Theme) -> None:
    """Pass@1 on held-out problems with its interval, the training reward, and the range of other seeds."""
    steps = [evaluation.step for evaluation in run.dev]
    low, high = ([evaluation.line["pass_at_1"][end] for evaluation in run.dev] for end in (1, 2))
    held_out = [evaluation.line["pass_at_1"][0] for evaluation in run.dev]
    lines = [
        Line("training\nreward", *step_values(run, "reward"), theme.orange, noisy=True),
        Line("held-out\npass@1", steps, held_out, theme.blue, band=(low, high), dots=True),
    ]
    if len((seeds := band(list(run.seeds.values()))).steps) > 1:  # at one step alone there is nothing to draw
        name = f"{len(run.seeds)} seeds"
        lines.insert(0, Line(name, seeds.steps, seeds.mean, theme.muted, band=(seeds.low, seeds.high)))
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, _last_step(run), "share")


def draw_length(figure: Figure | SubFigure, run: RunData, theme: Theme) -> None:
    """Mean length of correct and of wrong completions in training."""
    lines = [
        Line("wrong", *step_values(run, "length_wrong"), theme.orange, noisy=True),
        Line("correct", *step_values(run, "length_correct"), theme.blue, noisy=True),
    ]
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, _last_step(run), "tokens")


def draw_signal(figure: Figure | SubFigure, run: RunData, theme: Theme) -> None:
    """Entropy above, share of groups with signal below: two units, two axes."""
    upper, lower = panel_axes(figure, rows=2)
    entropy = Line("entropy\n(nats)", *step_values(run, "entropy"), theme.purple, noisy=True)
    signal = Line("groups\nwith signal", *step_values(run, "signal"), theme.green, noisy=True)
    draw_lines(upper, [entropy], theme, _last_step(run), "nats", is_lowest=False)
    draw_lines(lower, [signal], theme, _last_step(run), "share")


def draw_behaviour(figure: Figure | SubFigure, run: RunData, theme: Theme) -> None:
    """Share of dev completions that show each behaviour."""
    dev = [evaluation for evaluation in run.dev if evaluation.rows]
    colours = {
        Behaviour.AT_ONCE: theme.orange,
        Behaviour.WORKS_OUT: theme.blue,
        Behaviour.CHECKS: theme.green,
        Behaviour.ANOTHER_WAY: theme.purple,
        Behaviour.UNFINISHED: theme.muted,
    }
    shares = [behaviour_shares(evaluation.rows, run_patterns(run), colours) for evaluation in dev]
    steps = [evaluation.step for evaluation in dev]
    lines = [
        Line(str(behaviour), steps, [values[behaviour] for values in shares], colour, dots=True)
        for behaviour, colour in colours.items()
    ]
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, _last_step(run), "share")


def draw_families(figure: Figure | SubFigure, run: RunData, theme: Theme) -> None:
    """Pass@1 on held-out problems of each family."""
    dev = [evaluation for evaluation in run.dev if evaluation.line.get("families")]
    steps = [evaluation.step for evaluation in dev]
    colours = itertools.cycle((theme.blue, theme.orange, theme.green, theme.purple, theme.ink, theme.muted))
    lines = [
        Line(name, steps, [_value(evaluation.line["families"].get(name)) for evaluation in dev], colour, dots=True)
        for name, colour in zip(sorted({name for one in dev for name in one.line["families"]}), colours, strict=False)
    ]
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, _last_step(run), "share")


def _value(estimate: Sequence[float] | None) -> float | None:
    return None if estimate is None else estimate[0]


def has_families(run: RunData) -> bool:
    """Whether its evaluations tell families of problems apart."""
    return any(evaluation.line.get("families") for evaluation in run.dev)


class Panel(NamedTuple):
    """One picture and what it shows."""

    title: str
    subtitle: str
    draw: Callable[[Figure | SubFigure, RunData, Theme], None]
    shown: Callable[[RunData], bool] = lambda run: True
    """Whether a run has what it shows."""


PANELS: Mapping[str, Panel] = {
    "learning": Panel(
        "Problems solved",
        "dev pass@1 with its 95 % interval; mean reward in training",
        draw_learning,
    ),
    "behaviour": Panel(
        "How it goes about a problem", "share of completions on the dev split; signs read from the text", draw_behaviour
    ),
    "length": Panel(
        "Completion length", "mean tokens per completion; thin: each training step, thick: moving mean", draw_length
    ),
    "signal": Panel(
        "What is left to learn from",
        "variety of sampling; groups whose completions earned different rewards",
        draw_signal,
    ),
    "families": Panel("Family by family", "dev pass@1 of each family of problems", draw_families, has_families),
}
"""Every panel by name, in reading order."""


def shown_panels(run: RunData) -> dict[str, Panel]:
    """The panels for which a run has something to show, by name."""
    return {name: panel for name, panel in PANELS.items() if panel.shown(run)}


def draw(run: RunData, theme: Theme = LIGHT) -> Figure:
    """All panels with their titles, two in a row."""
    panels = shown_panels(run)
    rows = math.ceil(len(panels) / 2)
    figure = Figure(figsize=(WIDTH, HEIGHT * rows / 2), facecolor=theme.paper)
    subfigures = np.asarray(figure.subfigures(rows, 2, wspace=0, hspace=0.02)).flat
    for subfigure, panel in zip(subfigures, panels.values(), strict=False):
        upper, lower = subfigure.subfigures(2, 1, height_ratios=[0.16, 0.84], hspace=0)
        heading(upper, theme, panel.title, panel.subtitle)
        panel.draw(lower, run, theme)
    return figure


def png(run: RunData) -> bytes:
    """All panels as one PNG."""
    with style():
        return encode_figure(draw(run), "png", dpi=DPI)


def save_png(run: RunData, path: Path) -> None:
    """Write all panels as one PNG, about 1600 pixels wide."""
    write_file(path, png(run))


def panel_svg(run: RunData, name: str, dark: bool = False) -> bytes:
    """One panel of `PANELS`, without its title, as an SVG with a transparent background for a light or a dark page."""
    with style():
        figure = Figure(figsize=PANEL_SIZE, facecolor="none")
        PANELS[name].draw(figure, run, DARK if dark else LIGHT)
        return encode_figure(figure, "svg", metadata={"Date": None})


def step_values(run: RunData, key: str) -> tuple[list[int], list[float | None]]:
    """A value of every step, placed at the finished steps behind the weights that sampled."""
    return [line["step"] for line in run.steps], [line.get(key) for line in run.steps]


def _last_step(run: RunData) -> int:
    """Finished steps so far: where every panel's axis ends."""
    return max([line["step"] + 1 for line in run.steps] + [evaluation.step for evaluation in run.dev], default=0)


def style() -> Any:
    """The look of every figure, as a context."""
    # text as paths: the same picture on every machine; with the salt a repeat writes the same bytes
    return matplotlib.rc_context(
        {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "path", "svg.hashsalt": "groupwise"}
    )


def encode_figure(figure: Figure, form: str, **options: Any) -> bytes:
    """The figure as a file of this form."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=form, **options)
    return buffer.getvalue()
