"""The curves of a stage's training, as panels for a light and for a dark page."""

from collections.abc import Callable
from typing import NamedTuple

from matplotlib.figure import Figure

from groupwise.evaluation.lines import DARK, LIGHT, Line, Theme, draw_lines, panel_axes
from groupwise.evaluation.pipeline_report.data import Stage
from groupwise.evaluation.pipeline_report.training import held_out
from groupwise.evaluation.plots import PANEL_SIZE, PANELS, panel_svg, saved, style

RL_PANELS = ("learning", "length")


class Curve(NamedTuple):
    """One panel."""

    title: str
    subtitle: str
    light: bytes
    """SVG for a light page."""
    dark: bytes


def curves(stage: Stage) -> list[Curve]:
    """Reward, held-out pass@1 and length of reinforcement learning; accuracy on held-out pairs; or the loss."""
    if stage.run is None or not stage.run.steps:
        return []
    if "reward" in stage.run.steps[0]:
        return [_of_run(stage, name) for name in RL_PANELS]
    if held_out(stage):
        return [_curve("Preferences", "share of pairs whose better completion scores higher", draw_accuracy, stage)]
    return [_curve("Loss", "mean per trained token in nats; thin: each step, thick: moving mean", draw_loss, stage)]


def _of_run(stage: Stage, name: str) -> Curve:
    assert stage.run
    panel = PANELS[name]
    return Curve(panel.title, panel.subtitle, panel_svg(stage.run, name), panel_svg(stage.run, name, dark=True))


def draw_loss(figure: Figure, stage: Stage, theme: Theme) -> None:
    """The loss of every step."""
    steps, losses = _of_steps(stage, "loss")
    (axes,) = panel_axes(figure)
    draw_lines(axes, [Line("loss", steps, losses, theme.purple, noisy=True)], theme, len(steps), "nats")


def draw_accuracy(figure: Figure, stage: Stage, theme: Theme) -> None:
    """Accuracy on the pairs of each step and, with its interval, on held-out pairs."""
    steps, trained = _of_steps(stage, "accuracy")
    found = held_out(stage)
    value, low, high = zip(*(line["accuracy"] for line in found), strict=True)
    lines = [
        Line("training\npairs", steps, trained, theme.orange, noisy=True),
        Line("held-out\npairs", [line["step"] for line in found], value, theme.blue, band=(low, high), dots=True),
    ]
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, len(steps), "share")


def _of_steps(stage: Stage, key: str) -> tuple[list[int], list[float | None]]:
    lines = stage.run.steps if stage.run else ()
    return [line["step"] for line in lines], [line.get(key) for line in lines]


def _curve(title: str, subtitle: str, draw: Callable[[Figure, Stage, Theme], None], stage: Stage) -> Curve:
    return Curve(title, subtitle, *(_svg(draw, stage, theme) for theme in (LIGHT, DARK)))


def _svg(draw: Callable[[Figure, Stage, Theme], None], stage: Stage, theme: Theme) -> bytes:
    with style():
        figure = Figure(figsize=PANEL_SIZE, facecolor="none")
        draw(figure, stage, theme)
        return saved(figure, "svg", metadata={"Date": None})
