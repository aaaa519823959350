"""`groupwise budget`: what `measure_budget` found as a table, as a page, or as JSON."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from groupwise.algorithms.statistics import Estimate
from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.evaluation.test_time.budget import measure_budget
from groupwise.evaluation.test_time.result import BudgetResult, Point
from groupwise.evaluation.test_time.settings import BudgetConfig
from groupwise.explorer.export import write_export
from groupwise.models.loading import quiet_transformers


def run_budget(
    checkpoint: str, console: Console, as_json: bool, report: Path | None, dials: dict[str, Any], **options: Any
) -> None:
    """Measure, write the page, and print a table or JSON; the options are those of `measure_budget`."""
    quiet_transformers()
    config = parse(BudgetConfig, {name: value for name, value in dials.items() if value is not None}, source="budget")
    status = console.status("sampling") if not as_json else nullcontext()
    with status as shown:

        def progress(what: str, done: int, total: int) -> None:
            if shown is not None:
                shown.update(f"{what}: {done} of {total} problems")

        result = measure_budget(checkpoint, config=config, progress=progress, **options)
    page = write_export([result.directory], report or result.directory / "report.html")
    if as_json:
        print(json.dumps(result.as_dict(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    for table in (*tables(result.points), *_equal_tokens(result), *_optimal(result)):
        console.print(table)
    if result.left_out:
        console.print(f"left out, too few judged samples: {', '.join(result.left_out)}")
    console.print(f"[dim]{page}, and the figures in {result.directory}[/]", soft_wrap=True)


def tables(points: Sequence[Point]) -> list[Table]:
    """A table for each budget."""
    found = []
    for budget in sorted({point.budget for point in points}):
        title = f"budget {budget}: accuracy with 95 % intervals over problems, and cost per problem"
        table = Table(title=title, title_justify="left")
        table.add_column("method", overflow="fold")
        for name in ("accuracy", "over majority", "of the way to pass@k", "tokens", "reward tokens", "MFLOP", "ms"):
            table.add_column(name, justify="right")
        for point in (point for point in points if point.budget == budget):
            table.add_row(*_cells(point))
        found.append(table)
    return found


def _cells(point: Point) -> list[str]:
    over, way = point.over_majority, point.way
    return [
        point.method,
        str(point.accuracy),
        signed(over) if over else "",
        f"{way.value:.0%} [{way.low:.0%}, {way.high:.0%}]" if way else "",
        f"{point.policy_tokens:,.0f}",
        f"{point.reward_tokens:,.0f}",
        f"{point.operations / 1e6:,.0f}",
        f"{1000 * point.seconds:,.1f}",
    ]


def _optimal(result: BudgetResult) -> list[Table]:
    if not result.optimal:
        return []
    table = Table(title="the best method for each difficulty, chosen on the other half", title_justify="left")
    table.add_column("difficulty by")
    for name in ("budget", "accuracy", "gain over one method for all", "tokens", "tokens to know the difficulty"):
        table.add_column(name, justify="right")
    for one in result.optimal:
        known = float(one.difficulty_cost.policy_tokens.mean())
        tokens = float(one.cost.policy_tokens.mean())
        table.add_row(
            one.difficulty, str(one.budget), str(one.accuracy), signed(one.gain), f"{tokens:,.0f}", f"{known:,.0f}"
        )
    return [table]


def _equal_tokens(result: BudgetResult) -> list[Table]:
    if not result.equal_tokens:
        return []
    table = Table(
        title="searches less choices from the pool at as many tokens; hardest fifth first", title_justify="left"
    )
    for name in ("search", "budget", "against", "samples", "difference", "by pass rate"):
        table.add_column(name, justify="left" if name in ("search", "against") else "right", overflow="fold")
    for one in result.equal_tokens:
        bins = (one.by_difficulty.get("pass_rate") or {}).values()
        table.add_row(
            one.method, str(one.budget), one.against, f"{one.samples:.1f}", signed(one.difference),
            " ".join(f"{value.value:+.2f}" for value in bins),
        )  # fmt: skip
    return [table]


def signed(estimate: Estimate) -> str:
    """A difference with its interval.

    >>> signed(Estimate(0.5, 0.25, 0.75))
    '+0.500 [+0.250, +0.750]'
    """
    return f"{estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def listed(text: str | None) -> list[str] | None:
    """The parts of a comma-separated text.

    >>> listed("greedy, majority")
    ['greedy', 'majority']
    """
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[int]:
    """The whole numbers of a comma-separated text.

    Raises:
        ConfigError: a part is none.
    """
    try:
        return [int(part) for part in listed(text) or []]
    except ValueError:
        raise ConfigError(f"--budgets {text!r}: whole numbers with commas between them are allowed") from None
