"""What the training runs of a pipeline measured on their way: a table, curves, alarms of reward hacking."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import METRICS, Metric, show
from groupwise.evaluation.run_data import RunData
from groupwise.pages.lines import DARK, LIGHT, Line, Theme, draw_lines, panel_axes
from groupwise.pages.pipeline import table
from groupwise.pages.pipeline.data import PipelineData, Stage
from groupwise.pages.pipeline.table import NOTHING, Column, Table, text_cell
from groupwise.pages.plots import PANEL_SIZE, PANELS, encode_figure, panel_svg, step_values, style

ACCURACY = Metric("accuracy", "%", "Held-out pairs whose better completion scores higher.")
REJECTED = Metric("rejected", "%", "Completions that training pays and the second verifier rejects.")
RL_PANELS = ("learning", "length", "families")


def training_table(data: PipelineData) -> Table:
    """What each training run set out from and where it arrived."""
    columns = tuple(map(Column, ("algorithm", "steps", "measured", "at first", "at last", "best")))
    lines = tuple(_training_line(stage, stage.run) for stage in data.stages if stage.run)
    note = "As the runs themselves measured it, on held-out problems or pairs of their own; 95 % intervals."
    return Table("Training", note, "stage", columns, lines, "No training has begun.")


def _training_line(stage: Stage, run: RunData) -> table.Line:
    num_done = run.steps[-1]["step"] + 1 if run.steps else 0
    state = "" if run.finished else ", unfinished"
    cells = (stage.algorithm or NOTHING, f"{num_done} of {run.num_steps}{state}", *_progress(stage, run))
    return table.Line(stage.name, "", tuple(map(text_cell, cells)))


def _progress(stage: Stage, run: RunData) -> tuple[str, ...]:
    """What was measured, and its first, last and best value."""
    pairs = held_out(stage)
    if pairs:
        accuracies = [show(Estimate(*line["accuracy"]), ACCURACY) for line in pairs]
        return "accuracy on held-out pairs", accuracies[0], accuracies[-1], NOTHING
    if run.dev:
        dev = {
            evaluation.step: show(Estimate(*evaluation.line["pass_at_1"]), METRICS["pass_at_1"])
            for evaluation in run.dev
        }
        values = list(dev.values())
        best = NOTHING if run.best_step is None else f"{dev[run.best_step]} after {run.best_step} steps"
        return "pass@1 on dev", values[0], values[-1], best
    losses = [line["loss"] for line in run.steps if "loss" in line]
    if losses:
        return "loss, nats per token", f"{losses[0]:.3f}", f"{losses[-1]:.3f}", NOTHING
    return NOTHING, NOTHING, NOTHING, NOTHING


def held_out(stage: Stage) -> list[Mapping[str, Any]]:
    """Measurements on held-out pairs, in order; one that was done again after a resume counts once."""
    measurements = {line["step"]: line for line in stage.lines if line.get("kind") == "held_out"}
    return [measurements[step] for step in sorted(measurements)]


class Curve(NamedTuple):
    """One panel."""

    title: str
    subtitle: str
    light: bytes
    """SVG for a light page."""
    dark: bytes


def curves(stage: Stage) -> list[Curve]:
    """Reward, held-out pass@1 and length of reinforcement learning; accuracy on held-out pairs; or the loss."""
    run = stage.run
    if run is None or not run.steps:
        return []
    if "reward" in run.steps[0]:
        return [
            Curve(PANELS[name].title, PANELS[name].subtitle, panel_svg(run, name), panel_svg(run, name, dark=True))
            for name in RL_PANELS
            if PANELS[name].shown(run)
        ]
    if held_out(stage):
        return [_curve("Preferences", "share of pairs whose better completion scores higher", draw_accuracy, stage)]
    return [_curve("Loss", "mean per trained token in nats; thin: each step, thick: moving mean", draw_loss, stage)]


def draw_loss(figure: Figure, stage: Stage, theme: Theme) -> None:
    """The loss of every step."""
    steps, losses = _step_values(stage, "loss")
    (axes,) = panel_axes(figure)
    draw_lines(axes, [Line("loss", steps, losses, theme.purple, noisy=True)], theme, len(steps), "nats")


def draw_accuracy(figure: Figure, stage: Stage, theme: Theme) -> None:
    """Accuracy on the pairs of each step and, with its interval, on held-out pairs."""
    steps, accuracies = _step_values(stage, "accuracy")
    measurements = held_out(stage)
    value, low, high = zip(*(line["accuracy"] for line in measurements), strict=True)
    lines = [
        Line("training\npairs", steps, accuracies, theme.orange, noisy=True),
        Line(
            "held-out\npairs", [line["step"] for line in measurements], value, theme.blue, band=(low, high), dots=True
        ),
    ]
    (axes,) = panel_axes(figure)
    draw_lines(axes, lines, theme, len(steps), "share")


def _step_values(stage: Stage, key: str) -> tuple[list[int], list[float | None]]:
    return step_values(stage.run, key) if stage.run else ([], [])


def _curve(title: str, subtitle: str, draw: Callable[[Figure, Stage, Theme], None], stage: Stage) -> Curve:
    return Curve(title, subtitle, *(_svg(draw, stage, theme) for theme in (LIGHT, DARK)))


def _svg(draw: Callable[[Figure, Stage, Theme], None], stage: Stage, theme: Theme) -> bytes:
    with style():
        figure = Figure(figsize=PANEL_SIZE, facecolor="none")
        draw(figure, stage, theme)
        return encode_figure(figure, "svg", metadata={"Date": None})


def alarm_table(data: PipelineData) -> Table:
    """Where a second verifier, which training never uses, rejects what training pays."""
    columns = tuple(map(Column, ("second verifier", "checks", "alarms after steps", "most rejected", "for example")))
    lines = tuple(_alarm_line(stage.name, checks) for stage in data.stages if (checks := _checks(stage)))
    note = (
        "Reward hacking: a second verifier, which training never uses, judges again a sample of what training pays. "
        "There is an alarm where it surely rejects more than two verifiers may differ."
    )
    return Table("Alarms", note, "stage", columns, lines, "No stage has asked a second verifier.")


def num_alarms(data: PipelineData) -> dict[str, int]:
    """Stages with alarms, and how many."""
    counts = {stage.name: len(_alarm_steps(_checks(stage))) for stage in data.stages}
    return {name: count for name, count in counts.items() if count}


def _checks(stage: Stage) -> dict[int, Mapping[str, Any]]:
    """What the second verifier said, by step; what was done again after a resume counts once."""
    return {line["step"]: line["second"] for line in stage.lines if line.get("second")}


def _alarm_steps(checks: Mapping[int, Mapping[str, Any]]) -> list[int]:
    return sorted(step for step, check in checks.items() if check.get("alarm"))


def _alarm_line(name: str, checks: Mapping[int, Mapping[str, Any]]) -> table.Line:
    steps = _alarm_steps(checks)
    shares = [Estimate(*check["share"]) for check in checks.values() if check.get("share")]
    largest = show(max(shares), REJECTED) if shares else NOTHING
    example = (checks[steps[0]].get("example") or {}) if steps else {}
    texts = (
        str(checks[min(checks)].get("verifier", NOTHING)),
        str(len(checks)),
        ", ".join(map(str, steps)) or "none",
        largest,
        " ".join(str(example[key]) for key in ("problem", "evidence") if key in example) or NOTHING,
    )
    return table.Line(name, "", tuple(map(text_cell, texts)))
