"""`groupwise claims`: runs what is missing, writes the page, and says what was decided."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from groupwise.errors import ConfigError
from groupwise.models.loading import quiet_transformers
from groupwise_lab.claims.config import load_ledger
from groupwise_lab.claims.decided import decided
from groupwise_lab.claims.document import missing_lines, told, write_document
from groupwise_lab.claims.results import read_results
from groupwise_lab.claims.runner import Job, Request, codes_of_today, missing, run_missing


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    folder: Path
    name: str | None
    list_only: bool
    page_only: bool
    rerun: bool
    seeds: int
    jobs: int
    arms: tuple[str, ...]
    finished: tuple[str, ...]
    write: Path | None

    @property
    def page(self) -> Path | None:
        """Where the page goes; None where the ledger has no `docs` beside it."""
        docs = self.folder.resolve().parent / "docs"
        return self.write or (docs / "claims.md" if docs.is_dir() else None)


def run_claims(asked: Asked, console: Console) -> None:
    """Run what is missing of one claim or all, unless something less is asked for, and show what they decide."""
    quiet_transformers()
    ledger = load_ledger(asked.folder)
    claims, finished = ledger.chosen(asked.name), dict(map(_place, asked.finished))
    request = Request(ledger, claims, asked.seeds, asked.jobs, asked.rerun, asked.arms, finished)
    if asked.list_only:
        _list(request, console)
        return

    def on_job(job: Job, done: int, total: int) -> None:
        console.print(f"{done} of {total}: {job.run.name}, seed {job.run.seed}", highlight=False)

    if not asked.page_only:
        run_missing(request, on_job)
    results = read_results(asked.folder, ledger.arms.arms)
    for name, claim in claims.items():
        one = decided(claim, results)
        value = f": {told(claim.statistic, one.decision.estimate)}, {len(one.seeds)} seeds" if one.decision else ""
        console.print(f"{name} - {one.verdict}{value}", highlight=False, markup=False)
    if asked.page is not None:
        write_document(ledger, results, asked.page)
        console.print(f"Written to {asked.page}", highlight=False)


def _list(request: Request, console: Console) -> None:
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
