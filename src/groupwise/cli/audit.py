"""`groupwise audit`: what an audit of a verifier or of the sandbox found, on the terminal, as JSON or as a page."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from groupwise.algorithms.statistics import Estimate
from groupwise.checks.audit.judge import Result
from groupwise.checks.audit.sandbox import SandboxAudit, audit_sandbox
from groupwise.checks.audit.summary import Summary, Tally, outcomes
from groupwise.checks.audit.verifier import audit_verifier
from groupwise.checks.audit.wording import agreement_line, milliseconds, others, share, verdict_line
from groupwise.verifiers.extraction import clipped

MAX_DISAGREEMENTS = 5
"""Disagreements with the second opinion that are shown; the JSON has all."""


def run_audit(verifier: str, as_json: bool, console: Console, **options: Any) -> bool:
    """Audit a verifier and print what was found; True when every decided case has its expected verdict.

    The options are those of `audit_verifier`.
    """
    with nullcontext() if as_json else console.status("judging completions"):
        audit = audit_verifier(verifier, **options)
    if as_json:
        print(json.dumps(audit.as_dict(), indent=1))
        return audit.passed
    most_alike = len(audit.summary.misses) if options["cases"] else 2
    _print(audit.title, audit.summary, audit.explanations, console, most_alike)
    return audit.passed


def run_sandbox_audit(probes: Sequence[Path], overrides: Sequence[str], as_json: bool, console: Console) -> bool:
    """Run programs that try to get out of the sandbox; True when all were refused or contained."""
    with nullcontext() if as_json else console.status("running programs"):
        audit = audit_sandbox(probes, overrides)
    if as_json:
        print(json.dumps(audit.as_dict(), indent=1))
    else:
        _print_sandbox(audit, console)
    return audit.passed


def _print_sandbox(audit: SandboxAudit, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD)
    for column in ("probe", "", "what became of it"):
        table.add_column(column, overflow="fold")
    for name, result in audit.probes:
        style = "green" if result.contained else "bold red"
        table.add_row(
            Text(f"{result.id} {name}"),
            Text("held" if result.contained else "GOT THROUGH", style=style),
            Text(clipped(result.evidence)),
        )
    if audit.probes:
        console.print(table)
    console.print(Text(audit.verdict, style="bold green" if audit.passed else "bold red"), soft_wrap=True)


def _print(
    title: str, summary: Summary, explanations: Sequence[Sequence[str]], console: Console, most_alike: int
) -> None:
    """Print what an audit found: one explanation per miss, in their order; of misses alike at most `most_alike`."""
    console.print(_table(title, summary))
    totals: Counter[tuple[str, str]] = Counter()
    for result, lines in zip(summary.misses, explanations, strict=True):
        kind = (str(result.miss), result.case.group)
        totals[kind] += 1
        if totals[kind] <= most_alike:
            console.print(_miss(result, lines), soft_wrap=True, highlight=False)
    if num_hidden := sum(max(0, count - most_alike) for count in totals.values()):
        console.print(f"and {num_hidden} more like these: --json has them", highlight=False)
    if summary.undecided:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes(summary.undecided).items())
        console.print(f"undecided  {len(summary.undecided)} cases, which never decide: {counts}", highlight=False)
    console.print(f"latency    {milliseconds(summary.latency_ms)}", highlight=False)
    if line := agreement_line(summary):
        console.print(f"second opinion  {line}", highlight=False)
    for result in summary.disagreements[:MAX_DISAGREEMENTS]:
        case = result.case
        line = f"  against {case.name}: reference {clipped(case.problem.reference)}, {clipped(case.text)}"
        console.print(Text(f"{line} is {result.verdict.outcome}"), soft_wrap=True)
    style = "bold green" if summary.passed else "bold red"
    console.print(Text(verdict_line(summary), style=style), soft_wrap=True)


def _table(title: str, summary: Summary) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, caption="rates in %, with 95 % intervals")
    table.add_column("", overflow="fold")
    for name in ("right", "false positives", "false negatives"):
        table.add_column(name, justify="right", overflow="fold")
    for name, group in summary.groups.items():
        table.add_row(*_cells(name, group))
    if len(summary.groups) > 1:
        table.add_section()
        table.add_row(*_cells("all", summary.total), style="bold")
    return table


def _cells(name: str, counts: Tally) -> list[Text | str]:
    return [
        Text(name).append(f"\n{others(counts)}" if others(counts) else "", style="dim"),
        f"{counts.right}/{counts.decided}",
        _rate(counts.false_positives, counts.false_positive_rate),
        _rate(counts.false_negatives, counts.false_negative_rate),
    ]


def _rate(count: int, rate: Estimate) -> Text | str:
    text = f"{count}   {share(rate).replace(' %', '')}"
    return "–" if math.isnan(rate.value) else Text(text, style="red" if count else "")


def _miss(result: Result, lines: Sequence[str]) -> Text:
    case = result.case
    text = Text(f"{result.miss}", style="red").append(f"  {case.group}, {case.name}\n", style="bold")
    text.append(f"  reference {clipped(case.problem.reference)}\n  completion {clipped(case.text)}\n")
    text.append(f"  {result.verdict.outcome} in {1000 * result.seconds:,.1f} ms", style="yellow")
    for number, line in enumerate(lines or [result.verdict.evidence], start=1):
        text.append(f"\n  {number}. {line}", style="dim")
    return text
