"""The page of test-time compute: accuracy over tokens, per difficulty, and what every point costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.test_time.result import BudgetResult, EqualTokens, Optimal, Point
from groupwise.pages.budget_names import JOINED, METHODS, Look
from groupwise.pages.budget_plots import curves, svg
from groupwise.pages.html import render
from groupwise.pages.words import Tile
from groupwise.runs.atomic import write_file

DIFFICULTIES = {
    "label": "the task's label", "pass_rate": "pass rate, fifths of the problems",
    "pass_rate_absolute": "pass rate, fixed bounds", "prm": "process reward model",
}  # fmt: skip
"""What bins are made by, in words."""


class Picture(NamedTuple):
    """A figure of the page, for a light and for a dark one."""

    title: str
    note: str
    light: bytes
    dark: bytes


def write_budget_report(result: BudgetResult, path: Path) -> None:
    """Write the page of a measurement."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, budget_page(result).encode())


def budget_page(result: BudgetResult) -> str:
    """The page's text."""
    largest = max(point.budget for point in result.points)
    settings = {name: _shown(value) for name, value in result.settings.items()}
    return render(
        "budget.html",
        title="test-time compute",
        description=_description(result),
        tiles=_tiles([point for point in result.points if point.budget == largest], largest),
        pictures=_pictures(result),
        budgets=[
            (budget, [point for point in result.points if point.budget == budget])
            for budget in sorted({point.budget for point in result.points}, reverse=True)
        ],
        share=share,
        signed=signed,
        optimal=result.optimal,
        difficulties=DIFFICULTIES,
        most=most_used,
        equal=result.equal_tokens,
        hardest=hardest_first,
        flips=result.flips,
        left_out=", ".join(result.left_out),
        settings=settings,
    )


def _description(result: BudgetResult) -> str:
    of = result.settings
    models = [f"{role.upper()} {of[role]}" for role in ("prm", "orm") if of.get(role)]
    return f"{of['checkpoint']} on {len(result.problems)} problems of {of['task']}" + "".join(f", {m}" for m in models)


def _tiles(points: Sequence[Point], budget: int) -> list[Tile]:
    wanted = {"majority": "majority vote", "best_of_n/orm": "best by outcome", "best_of_n/prm_last": "best by steps"}
    named = {point.method: point for point in points}
    tiles = [
        Tile(f"{name} of {budget}", *_parted(named[method].accuracy))
        for method, name in wanted.items()
        if method in named
    ]
    if "control/perfect" in named:
        tiles.append(Tile(f"any of {budget} is right", *_parted(named["control/perfect"].accuracy)))
    return tiles


def _pictures(result: BudgetResult) -> list[Picture]:
    labels = sorted(set(result.labels))
    found = [_picture(result, "Accuracy over tokens", "all problems; bands are 95 % intervals over problems", METHODS)]
    if any(point.method in JOINED and point.method.startswith("best") for point in result.points):
        found.append(_picture(result, "How the scores of steps are joined", "best of k by the steps' scores", JOINED))
    if len(labels) > 1:
        for label in labels:
            number = sum(own == label for own in result.labels)
            found.append(_picture(result, f"Difficulty: {label}", f"{number} problems", METHODS, label))
    return found


def _picture(
    result: BudgetResult, title: str, note: str, methods: Mapping[str, tuple[str, Look]], label: str | None = None
) -> Picture:
    some = curves(result.points, methods, label)
    return Picture(title, note, svg(some), svg(some, dark=True))


def share(estimate: Estimate | None) -> str:
    """A share with its interval, in per cent.

    >>> share(Estimate(0.5, 0.25, 0.75))
    '50.0 % [25.0, 75.0]'
    """
    if estimate is None:
        return "–"
    value, low, high = (100 * number for number in estimate)
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def signed(estimate: Estimate | None) -> str:
    """A difference with its interval, in points.

    >>> signed(Estimate(0.5, 0.25, 0.75))
    '+50.0 points [+25.0, +75.0]'
    """
    if estimate is None:
        return "–"
    value, low, high = (100 * number for number in estimate)
    return f"{value:+.1f} points [{low:+.1f}, {high:+.1f}]"


def most_used(one: Optimal) -> str:
    """The method that most problems of each bin got."""
    return "; ".join(
        f"bin {number}: {max(counts, key=lambda m: (counts[m], m))}" for number, counts in one.methods.items()
    )


def hardest_first(one: EqualTokens) -> str:
    """Differences by fifths of the pass rate, in points, where a pool of its own told it."""
    bins = (one.by_difficulty.get("pass_rate") or {}).values()
    return "hardest fifth first: " + ", ".join(f"{100 * value.value:+.1f}" for value in bins) if bins else ""


def _parted(estimate: Estimate) -> tuple[str, str]:
    value, _, interval = share(estimate).partition(" [")
    return value, f"[{interval}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
