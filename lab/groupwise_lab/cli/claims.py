"""`groupwise claims`: run what is missing, write the page, and say what was decided."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from groupwise.cli.app import app, console
from groupwise.errors import ConfigError

if TYPE_CHECKING:
    from groupwise_lab.claims.runner import Job, Request


@app.command("claims")
def examine_claims(
    name: Annotated[str | None, typer.Argument(help="One claim, by its file's name; default: all.")] = None,
    folder: Annotated[Path, typer.Option(help="The ledger: arms.toml, and a file for each claim.")] = Path(
        "lab/claims"
    ),
    listing: Annotated[bool, typer.Option("--list", help="Say what is missing, and run nothing.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Write the page of what is there, and run nothing.")] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Delete the runs of these claims first.")] = False,
    seeds: Annotated[int, typer.Option(min=0, help="Seeds of each; 0: five of short runs, else three.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at one time, each with its share of the processor.")] = 1,
    arm: Annotated[list[str] | None, typer.Option(help="Run nothing but this arm. Repeatable.")] = None,
    finished: Annotated[
        list[str] | None,
        typer.Option(metavar="ARM=DIRECTORY", help="Read finished runs; `{seed}` stands for the seed. Repeatable."),
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Where the page is written; default: docs/claims.md of the checkout.")
    ] = None,
) -> None:
    """Run what decides the claims of a ledger, and write what holds here, what does not, and what is not decided.

    Killed, the same command goes on where it was; results that are there are not measured again.

    Examples:
        groupwise claims --list

        groupwise claims group_size --seeds 5

        groupwise claims --arm r1 --finished 'r1=runs/r1-seeds/seed-{seed}'
    """
    from groupwise.models.loading import quiet_transformers
    from groupwise_lab.claims.config import load_ledger
    from groupwise_lab.claims.decided import decided
    from groupwise_lab.claims.document import told, write_document
    from groupwise_lab.claims.results import read_results
    from groupwise_lab.claims.runner import Request, run_missing

    quiet_transformers()
    ledger = load_ledger(folder)
    claims, places = ledger.chosen(name), dict(map(_place, finished or ()))
    request = Request(ledger, claims, seeds, jobs, rerun, tuple(arm or ()), places)
    if listing:
        show_missing(request)
        return

    def on_job(job: "Job", done: int, total: int) -> None:
        console.print(f"{done} of {total}: {job.run.name}, seed {job.run.seed}", highlight=False)

    if not page:
        run_missing(request, on_job)
    results = read_results(folder, ledger.arms.arms)
    for key, claim in claims.items():
        ruling = decided(claim, results)
        value = (
            f": {told(claim.statistic, ruling.decision.estimate)}, {len(ruling.seeds)} seeds" if ruling.decision else ""
        )
        console.print(f"{key} - {ruling.verdict}{value}", highlight=False, markup=False)
    docs = [above / "docs" for above in folder.resolve().parents[:2] if (above / "docs").is_dir()]
    if target := write or (docs[0] / "claims.md" if docs else None):
        write_document(ledger, results, target)
        console.print(f"Written to {target}", highlight=False)


def show_missing(request: "Request") -> None:
    """Print which runs are missing, claim by claim, and how long they take."""
    from groupwise_lab.claims.document import missing_lines
    from groupwise_lab.claims.results import read_results
    from groupwise_lab.claims.runner import codes_of_today, missing

    results = read_results(request.folder, request.ledger.arms.arms)
    table = Table("claim", "verdict", "missing", "of other code than today's")
    codes = codes_of_today(request.ledger, request.claims)
    for row in missing_lines(request.ledger, request.claims, results, request.seeds, codes):
        table.add_row(*row)
    console.print(table)
    jobs = missing(request)
    minutes = sum(job.run.arm.minutes for job in jobs)
    console.print(f"{len(jobs)} runs are missing, about {minutes:.0f} minutes of one core", highlight=False)


def _place(text: str) -> tuple[str, str]:
    arm, separator, place = text.partition("=")
    if not separator or not place:
        raise ConfigError(f"--finished {text!r} must look like ARM=DIRECTORY, where {{seed}} stands for the seed")
    return arm, place
