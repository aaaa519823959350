"""The page of a run: what changed, how it went, real examples, what it took."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.checks.doctor import RULES, doctor
from groupwise.evaluation.behaviour import run_patterns
from groupwise.evaluation.compare import Change, before_after, changes
from groupwise.evaluation.metrics import METRICS, NOT_MEASURED, Metric, show
from groupwise.evaluation.run_data import RunData, load_run
from groupwise.evaluation.siblings import band, seed_curves
from groupwise.pages.behaviour import behaviour_of
from groupwise.pages.examples import examples
from groupwise.pages.gained import gained
from groupwise.pages.html import minus, parted, render
from groupwise.pages.plots import PANELS, panel_svg, save_png, shown_panels
from groupwise.pages.words import Tile, best_line, costs, description, errors_line, pair_line
from groupwise.runs.atomic import write_file

NUM_EXAMPLES = 3
CAPTIONS: Mapping[str, tuple[str, ...]] = {
    "learning": ("pass_at_1", "reward"),
    "behaviour": ("at_once", "works_out", "checks", "another_way", "unfinished"),
    "length": ("length",),
    "signal": ("entropy", "signal"),
    "families": ("pass_at_1",),
}
"""Metrics that each panel shows."""


def write_report(run_path: Path) -> Path:
    """Write `report.html` and `report.png` into a run directory; returns the page's path.

    Raises:
        ConfigError: there is no run at this path.
        DataError: one of its files cannot be read.
    """
    run = load_run(run_path)
    run = replace(run, seeds=seed_curves(run_path))
    save_png(run, run_path / "report.png")
    target = run_path / "report.html"
    write_file(target, page(run).encode())
    return target


def page(run: RunData) -> str:
    """The whole page."""
    pair = before_after(run)
    rows = changes(pair, run_patterns(run)) if pair else {}
    findings = doctor(run.path).findings if run.steps and "signal" in run.steps[0] else ()
    checks = [(evaluation.step, evaluation.line["second"]) for evaluation in run.dev if evaluation.line.get("second")]
    return render(
        "run.html",
        title=run.path.resolve().name,
        description=description(run),
        tiles=_tiles(run, rows),
        compared=pair_line(run, pair),
        figures=[_figure(run, name) for name in shown_panels(run)],
        changes=rows.values(),
        problems=gained(pair) if pair else None,
        show=show,
        checks=[(step, _check(second)) for step, second in checks],
        alarms=[step for step, second in checks if second["alarm"]],
        findings=[(one, RULES[one.rule].says) for one in findings],
        behaviour=behaviour_of(run),
        examples=examples(pair, NUM_EXAMPLES) if pair else None,
        facts=_facts(run),
        config=_flat(run.config),
        environment=_flat(run.environment),
    )


def _tiles(run: RunData, rows: Mapping[str, Change]) -> list[Tile]:
    time, times = METRICS["time"].name, costs(run)
    value, detail = times[time], times["where it went"]
    tiles = [_change_tile(METRICS[key].name, rows.get(key)) for key in ("pass_at_1", "at_once", "length")]
    return [*tiles, Tile(time, value, detail if detail != value else None)]


def _change_tile(name: str, row: Change | None) -> Tile:
    if row is None:
        return Tile(name, NOT_MEASURED, "")
    before, after = (parted(show(value, row.metric))[0] for value in (row.before, row.after))
    start = before.removesuffix(f" {row.metric.unit}") if row.metric.unit in after else before
    return Tile(name, f"{start} → {after}", minus(show(row.difference, row.metric, "+")))


@dataclass(frozen=True, slots=True)
class Figure:
    """A panel for a light and for a dark page, and what it shows."""

    title: str
    subtitle: str
    light: bytes
    dark: bytes
    metrics: list[Metric]

    @property
    def alt(self) -> str:
        """A text for those who cannot see it."""
        return f"{', '.join(metric.name for metric in self.metrics)} over steps"


def _figure(run: RunData, name: str) -> Figure:
    light, dark = (panel_svg(run, name, dark) for dark in (False, True))
    return Figure(PANELS[name].title, PANELS[name].subtitle, light, dark, [METRICS[key] for key in CAPTIONS[name]])


def _check(second: Mapping[str, Any]) -> dict[str, object]:
    """What the second verifier said at one dev evaluation."""
    share, example = second["share"], second["example"]
    text = f"completion {example['sample']} of {example['problem']}: {example['evidence']}" if example else "–"
    return {
        "verifier": second["verifier"],
        "rejects": f"{second['rejected']} of {second['judged']}",
        "share": str(Estimate(*share)) if share else NOT_MEASURED,
        "for example": text,
    }


def _facts(run: RunData) -> list[tuple[str, str, str]]:
    """Name, value, meaning."""
    errors, tokens, time = (METRICS[key] for key in ("verdict_errors", "tokens", "time"))
    best = "A Hugging Face directory; “groupwise sample” and “groupwise eval” take its path."
    return [
        (errors.name, errors_line(run), errors.meaning),
        (tokens.name, costs(run)[tokens.name], tokens.meaning),
        (time.name, costs(run)[time.name], time.meaning),
        ("best checkpoint", best_line(run), best),
        *_seeds(run),
    ]


def _seeds(run: RunData) -> list[tuple[str, str, str]]:
    """The band of the first panel in words; nothing where there is no other seed."""
    if len((found := band(list(run.seeds.values()))).steps) < 2:
        return []
    low, mean, high = (f"{100 * values[-1]:.1f} %" for values in (found.low, found.mean, found.high))
    said = f"{mean}, from {low} to {high}, dev pass@1 after {found.steps[-1]} steps"
    numbers = ", ".join(map(str, sorted(run.seeds)))
    return [(f"{len(run.seeds)} seeds", said, f"Runs beside this one that differ in their seed alone: {numbers}.")]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of nested tables under dotted keys."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            flat[f"{prefix}{key}"] = text
    return flat
