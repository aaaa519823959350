"""`groupwise claims`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command("claims")
def examine_claims(
    name: Annotated[str | None, typer.Argument(help="One claim, by its file's name; default: all.")] = None,
    folder: Annotated[Path, typer.Option(help="The ledger: arms.toml, and a file for each claim.")] = Path("claims"),
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
        Path | None, typer.Option(help="Where the page is written; default: docs/claims.md beside the ledger.")
    ] = None,
) -> None:
    """Run what decides the claims of a ledger, and write what holds here, what does not, and what is not decided.

    Killed, the same command goes on where it was; results that are there are not measured again.

    Examples:
        groupwise claims --list

        groupwise claims group_size --seeds 5

        groupwise claims --arm r1 --finished 'r1=runs/r1-seeds/seed-{seed}'
    """
    from groupwise_lab.cli.run_claims import Asked, run_claims

    asked = Asked(folder, name, listing, page, rerun, seeds, jobs, tuple(arm or ()), tuple(finished or ()), write)
    run_claims(asked, console)
