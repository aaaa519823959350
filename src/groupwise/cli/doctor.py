"""`groupwise doctor`: what is wrong with a run, with the numbers, the places and what to change; or the machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from groupwise.checks import STYLES, Finding, Severity
from groupwise.cli.app import Json, app, console, print_json, refuse

if TYPE_CHECKING:
    from groupwise.checks.doctor import Diagnosis

FAILED = 3
"""Exit status where a finding is as bad as `--fail-on` names."""


@app.command("doctor")
def examine(
    run: Annotated[Path | None, typer.Argument(help="A run directory, finished or not.")] = None,
    json: Json = False,
    fail_on: Annotated[str | None, typer.Option(metavar="SEVERITY",
        help="Exit with status 3 at note, warning or critical findings and worse.")] = None,
    explain: Annotated[str | None, typer.Option(metavar="RULE", help="Print what a rule computes, and why.")] = None,
    environment: Annotated[bool, typer.Option("--environment",
        help="Describe this machine and what works on it, for a bug report.")] = False,
) -> None:  # fmt: skip
    """Diagnose a run: what is wrong, with numbers, places and what to change. Reads its directory alone.

    Examples:

        groupwise doctor runs/arithmetic

        groupwise doctor runs/arithmetic --fail-on warning

        groupwise doctor --explain entropy_collapse

        groupwise doctor --environment
    """
    from groupwise.checks.doctor import doctor
    from groupwise.errors import ConfigError

    if environment:
        refuse("with --environment", RUN=run, fail_on=fail_on, explain=explain)
        from groupwise.checks.surroundings import surroundings

        facts = surroundings()
        if json:
            print_json(facts)
            return
        width = max(map(len, facts))
        for name, value in facts.items():
            console.print(Text(f"{name:{width}}  {_words(value)}"), soft_wrap=True)
        return
    if explain is not None:
        refuse("with --explain", RUN=run, json=json, fail_on=fail_on)
        from groupwise.checks.doctor import rule_named

        rule = rule_named(explain)
        console.print(Text(f"{rule.name}: {rule.says}", style="bold"))
        rows = {
            "statistic": rule.statistic, "bounds": rule.thresholds, "source": rule.source,
            "reads": ", ".join(rule.needs) or "every file of the run",
            "advice": "; ".join(map(str, rule.advice)) or "-",
        }  # fmt: skip
        for title, value in rows.items():
            console.print(Text(f"  {title:9}  {value}"), soft_wrap=True)
        return
    if run is None:
        raise ConfigError("doctor needs a run directory, --explain RULE or --environment")
    if fail_on is not None and fail_on not in list(Severity):
        raise ConfigError(f"--fail-on = {fail_on!r} is not allowed; allowed are {', '.join(Severity)}")
    diagnosis = doctor(run)
    if json:
        print_json({
            "num_steps": diagnosis.num_steps, "worst": diagnosis.worst,
            "findings": [finding.facts() for finding in diagnosis.findings], "not_judged": diagnosis.not_judged,
        })  # fmt: skip
    else:
        show(run, diagnosis)
    if fail_on and diagnosis.worst and diagnosis.worst.rank >= Severity(fail_on).rank:
        raise typer.Exit(FAILED)


def show(path: Path, diagnosis: "Diagnosis") -> None:
    """Print a headline, a block for each finding, and what could not be judged."""
    from groupwise.checks.doctor import RULES

    counts = {severity: sum(found.severity is severity for found in diagnosis.findings) for severity in Severity}
    summary = ", ".join(f"{n} {severity}{'s' if n > 1 else ''}" for severity, n in counts.items() if n)
    judged = len(RULES) - len(diagnosis.not_judged)
    steps = "steps" if diagnosis.rhythm == 1 else f"recorded steps, {diagnosis.rhythm} steps apart"
    headline = f"{path}: {diagnosis.num_steps} {steps}, {judged} of {len(RULES)} rules: {summary or 'nothing found'}"
    console.print(Text(headline, style=STYLES[diagnosis.worst or Severity.NOTE] if summary else "green"))
    for finding in diagnosis.findings:
        console.print()
        console.print(finding.text(RULES[finding.check].says), soft_wrap=True)
    if diagnosis.not_judged:
        console.print()
        missing = "; ".join(f"{name} ({', '.join(names)})" for name, names in diagnosis.not_judged.items())
        console.print(Text(f"Not judged, for what was not recorded: {missing}", style="dim"), soft_wrap=True)


def line(finding: Finding) -> Text:
    """Return a finding as a line among those of the steps."""
    from groupwise.checks.doctor import RULES

    text = f"  {finding.severity}  {RULES[finding.check].says} {finding.evidence} (doctor: {finding.check})"
    return Text(text, style=STYLES[finding.severity])


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return "-" if value is None else str(value)
