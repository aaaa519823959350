"""`groupwise doctor`: what is wrong with a run, with the numbers, the places and what to change."""

import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from groupwise.checks.doctor import RULES, Diagnosis, Finding, Severity, doctor, rule_named

STYLES = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}
FAILED = 3
"""Exit status where a finding is as bad as `--fail-on` says."""


def run_doctor(path: Path, console: Console, as_json: bool, fail_on: Severity | None) -> int:
    """Print the diagnosis of a run; returns the exit status."""
    diagnosis = doctor(path)
    if as_json:
        print(json.dumps(facts(diagnosis), ensure_ascii=False, indent=2))
    else:
        show(path, diagnosis, console)
    worst = diagnosis.worst
    return FAILED if fail_on and worst and worst.rank >= fail_on.rank else 0


def facts(diagnosis: Diagnosis) -> dict[str, object]:
    """As JSON."""
    return {
        "num_steps": diagnosis.num_steps,
        "worst": diagnosis.worst,
        "findings": [finding.facts() for finding in diagnosis.findings],
        "not_judged": diagnosis.not_judged,
    }


def show(path: Path, diagnosis: Diagnosis, console: Console) -> None:
    """A headline, a block for each finding, and what could not be judged."""
    counts = [sum(one.severity is severity for one in diagnosis.findings) for severity in Severity]
    said = ", ".join(f"{n} {severity}{'s' if n > 1 else ''}" for n, severity in zip(counts, Severity, strict=True) if n)
    judged = len(RULES) - len(diagnosis.not_judged)
    headline = f"{path}: {diagnosis.num_steps} steps, {judged} rules: {said or 'nothing found'}"
    console.print(Text(headline, style=STYLES.get(diagnosis.worst or Severity.NOTE, "") if said else "green"))
    for finding in diagnosis.findings:
        console.print()
        console.print(block(finding), soft_wrap=True)
    if diagnosis.not_judged:
        console.print()
        missing = "; ".join(f"{name} ({', '.join(names)})" for name, names in diagnosis.not_judged.items())
        console.print(Text(f"Not judged, for what was not recorded: {missing}", style="dim"), soft_wrap=True)


def block(finding: Finding) -> Text:
    """A finding in a few lines. Text alone: a problem's id is never markup."""
    rule = RULES[finding.rule]
    lines = Text.assemble(
        (f"{finding.severity}  ", STYLES[finding.severity]), (rule.says, "bold"), (f"  {finding.rule}", "dim")
    )
    lines.append(f"\n  {finding.explanation}.")
    wasted = f"; about {finding.wasted} steps wasted" if finding.wasted else ""
    lines.append(f"\n  {finding.statistic:.3g} {finding.unit}; bound {finding.threshold:g}; since step "
                 f"{finding.since_step}{wasted}", "dim")  # fmt: skip
    if finding.where:
        lines.append(f"\n  see  {finding.where}")
    for one in finding.advice:
        lines.append(f"\n  try  {one.key}: {one.change}" if one.key else f"\n  try  {one.change}")
    return lines


def line(finding: Finding) -> Text:
    """A finding as a line among those of the steps."""
    text = f"  {finding.severity}  {RULES[finding.rule].says} {finding.explanation} (doctor: {finding.rule})"
    return Text(text, style=STYLES[finding.severity])


def explain(name: str, console: Console) -> None:
    """What a rule computes, from where on, and where that is from.

    Raises:
        ConfigError: there is no such rule.
    """
    rule = rule_named(name)
    console.print(Text(f"{rule.name}: {rule.says}", style="bold"))
    rows = {
        "statistic": rule.statistic, "bounds": rule.thresholds, "source": rule.source,
        "reads": ", ".join(rule.needs) or "every file of the run",
        "advice": "; ".join(f"{one.key}: {one.change}" if one.key else one.change for one in rule.advice) or "-",
    }  # fmt: skip
    for name, value in rows.items():
        console.print(Text(f"  {name:9}  {value}"), soft_wrap=True)
