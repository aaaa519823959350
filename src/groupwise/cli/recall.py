"""`groupwise recall`: bars for the long pieces of work, a line for every round, and the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from groupwise.config import load
from groupwise.recall.recipe import RecallRecipe, run_recall
from groupwise.recall.report import write_recall_report


def recall_with_display(file: Path, overrides: Sequence[str], restart: bool, console: Console) -> None:
    """Run a recipe of recall and write its page."""
    recipe = load(RecallRecipe, file, overrides)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        facts = run_recall(recipe, _shown(bars), restart)
    for number, one in enumerate(facts["rounds"], 1):
        console.print(round_line(number, one), highlight=False)
    corpus = facts["corpus"]
    console.print(
        f"corpus: {corpus['pages']:,} pages, {corpus['characters']:,} characters", style="green", highlight=False
    )
    console.print(f"Report: {write_recall_report(Path(recipe.directory))}", soft_wrap=True)


def _shown(bars: Progress) -> Any:
    tasks: dict[str, TaskID] = {}

    def show(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done, total=total)

    return show


def round_line(number: int, one: Mapping[str, Any]) -> str:
    """A round in a line."""
    parts = [f"round {number}: {one['kept']:,} pages, {100 * one['known_share']:.1f} % of them known"]
    for name in ("precision", "recall"):
        if name in one and one[name][1]:
            parts.append(f"{name} {one[name][0] / one[name][1]:.3f}")
    return ", ".join(
        [*parts, f"{one['yes']} of {one['asked']} patterns are mathematics, {one['grown']} pages join the seed"]
    )
