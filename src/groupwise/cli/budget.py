"""`groupwise budget`: the worth of test-time compute as a table, as a page, or as JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from groupwise.cli.app import Checkpoint, Json, Overrides, app, console, options_from, print_json, table_of

if TYPE_CHECKING:
    from groupwise.evaluation.test_time.result import BudgetResult

SETTINGS = "groupwise.evaluation.test_time.methods:BudgetConfig"


@app.command()
@options_from("groupwise.evaluation.test_time.budget:measure_budget", SETTINGS)
def budget(
    checkpoint: Checkpoint,
    report: Annotated[Path | None, typer.Option(help="The page; default: report.html in the directory.")] = None,
    overrides: Overrides = None,
    json: Json = False,
    **settings: Any,
) -> None:
    """Measure the worth of test-time compute: accuracy over tokens of votes, choices by reward models and searches.

    One pool of samples per problem feeds every choice, with the exact mean over all subsets of each size. Killed, the
    same command continues where it was.

    Examples:

        groupwise budget base --task arithmetic --problems 100 --samples 16 --budgets 1,2,4,8,16

        groupwise budget base --task word_problems --prm runs/prm/checkpoints/best --orm runs/orm/checkpoints/best

        groupwise budget base --task arithmetic --prm runs/prm/checkpoints/best --methods majority,best_of_n,beam,dvts
    """
    from groupwise.config import parse
    from groupwise.evaluation.test_time.budget import measure_budget
    from groupwise.evaluation.test_time.methods import BudgetConfig
    from groupwise.explorer.export import write_export
    from groupwise.models.loading import quiet_transformers

    quiet_transformers()
    keys = {name: settings.pop(name) for name in BudgetConfig.model_fields if name in settings}
    config = parse(BudgetConfig, keys, source="budget")
    result = measure_budget(checkpoint, config=config, changes=overrides or [], **settings)
    page = write_export([result.directory], report or result.directory / "report.html")
    if json:
        print_json(result.as_dict())
        return
    for table in tables(result):
        console.print(table)
    if result.left_out:
        console.print(f"left out, too few judged samples: {', '.join(result.left_out)}")
    console.print(f"[dim]{page}, and the figures in {result.directory}[/]", soft_wrap=True)


def tables(result: "BudgetResult") -> Iterator[Table]:
    """Yield a table for each budget, one of the best method by difficulty, and one of searches at equal tokens."""
    for budget in sorted({point.budget for point in result.points}):
        title = f"budget {budget}: accuracy with 95 % intervals over problems, and cost per problem"
        names = ["accuracy", "over majority", "of the way to pass@k", "tokens", "reward tokens", "MFLOP", "ms"]
        rows = table_of("method", right=names, title=title)
        for point in (point for point in result.points if point.budget == budget):
            over, way = point.over_majority, point.way
            rows.add_row(
                point.method, str(point.accuracy), over.signed if over else "",
                f"{way.value:.0%} [{way.low:.0%}, {way.high:.0%}]" if way else "", f"{point.policy_tokens:,.0f}",
                f"{point.reward_tokens:,.0f}", f"{point.operations / 1e6:,.0f}", f"{1000 * point.seconds:,.1f}",
            )  # fmt: skip
        yield rows
    if result.optimal:
        title = "the best method for each difficulty, chosen on the other half"
        names = ["budget", "accuracy", "gain over one method for all", "tokens", "tokens to know the difficulty"]
        rows = table_of("difficulty by", right=names, title=title)
        for row in result.optimal:
            costs = (f"{float(cost.policy_tokens.mean()):,.0f}" for cost in (row.cost, row.difficulty_cost))
            rows.add_row(row.difficulty, str(row.budget), str(row.accuracy), row.gain.signed, *costs)
        yield rows
    if result.equal_tokens:
        title = "searches less choices from the pool at as many tokens; hardest fifth first"
        names = ["budget", "against", "samples", "difference", "by pass rate"]
        rows = table_of("search", right=names, title=title)
        rows.columns[2].justify = "left"
        for search in result.equal_tokens:
            bins = (search.by_difficulty.get("pass_rate") or {}).values()
            by_rate = " ".join(f"{value.value:+.2f}" for value in bins)
            numbers = (f"{search.samples:.1f}", search.difference.signed, by_rate)
            rows.add_row(search.method, str(search.budget), search.against, *numbers)
        yield rows
