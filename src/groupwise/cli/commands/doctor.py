"""`groupwise doctor`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import app, console


@app.command("doctor")
def examine(
    run: Annotated[Path | None, typer.Argument(help="A run directory, finished or not.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="SEVERITY", help="Exit with status 3 at note, warning or critical findings and worse."),
    ] = None,
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Say what a rule computes, and why.")] = None,
    environment: Annotated[
        bool, typer.Option("--environment", help="Say what this machine is and what works on it, for a bug report.")
    ] = False,
) -> None:
    """Say what is wrong with a run: with numbers, places and what to change. Reads its directory alone.

    Examples:

        groupwise doctor runs/arithmetic

        groupwise doctor runs/arithmetic --fail-on warning

        groupwise doctor --explain entropy_collapse

        groupwise doctor --environment
    """
    if environment:
        from groupwise.cli.environment import show_environment

        show_environment(console, json)
        return
    from groupwise.checks.doctor import Severity
    from groupwise.cli import doctor
    from groupwise.errors import ConfigError

    if explain is not None:
        doctor.explain(explain, console)
        return
    if run is None:
        raise ConfigError("doctor needs a run directory, --explain RULE or --environment")
    if fail_on is not None and fail_on not in list(Severity):
        raise ConfigError(f"--fail-on = {fail_on!r} is not allowed; allowed are {', '.join(Severity)}")
    if status := doctor.run_doctor(run, console, json, Severity(fail_on) if fail_on else None):
        raise typer.Exit(status)
