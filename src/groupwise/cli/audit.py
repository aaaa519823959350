"""`groupwise audit`: attacks on a verifier or the sandbox, with every wrong reward, on the terminal or as JSON."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.text import Text

from groupwise.cli.app import Json, Overrides, app, console, print_json, refuse, table_of

if TYPE_CHECKING:
    from groupwise.checks.audit.judge import Result
    from groupwise.checks.audit.sandbox import SandboxAudit
    from groupwise.checks.audit.summary import Summary
    from groupwise.checks.audit.verifier import Audit

MAX_DISAGREEMENTS = 5
"""Disagreements with the second opinion that are shown; the JSON has all."""


@app.command()
def audit(
    subject: Annotated[
        str, typer.Argument(help="A verifier's name, `path/to/file.py:function` of your own, or `sandbox`.")],
    cases: Annotated[list[Path] | None, typer.Option(help="Labelled cases (JSON lines). Repeatable.")] = None,
    probes: Annotated[
        list[Path] | None, typer.Option(help="Programs for the sandbox (JSON lines). Repeatable.")
    ] = None,
    tier: Annotated[list[str] | None, typer.Option(help="Judge only cases of this tier. Repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="Task whose problems are attacked.")] = None,
    reference: Annotated[list[str] | None, typer.Option(help="A reference answer to attack. Repeatable.")] = None,
    problems: Annotated[int, typer.Option(min=1, help="Problems of the task to attack.")] = 4,
    overrides: Overrides = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Attack a verifier, your own reward function or the sandbox, or score labelled cases; report every wrong reward.

    The exit status is 0 only when every decided case has its expected verdict.

    A function of your own is called as in training; above `verifier.correct_above` (0.5) counts as correct.

    Examples:

        groupwise audit math

        groupwise audit math --cases cases.jsonl --tier core

        groupwise audit rewards.py:reward --task arithmetic

        groupwise audit sandbox --probes probes.jsonl
    """
    from groupwise.checks.audit.sandbox import audit_sandbox
    from groupwise.checks.audit.verifier import audit_verifier

    result: SandboxAudit | Audit
    if subject == "sandbox":
        refuse("on the sandbox", cases=cases, tier=tier, task=task, reference=reference, problems=problems != 4)
        result = sandbox = audit_sandbox(probes or [], overrides or [])
    else:
        refuse("on a verifier", probes=probes)
        refuse("with --cases", reference=cases and reference, problems=cases and problems != 4)
        result = verifier = audit_verifier(
            subject, cases=cases or (), tiers=tier or (), task=task, references=reference or (), problems=problems,
            changes=overrides or (),
        )  # fmt: skip
    if json:
        print_json(result.as_dict())
    elif subject == "sandbox":
        from groupwise.verifiers.extraction import clipped

        table = table_of("probe", "", "what became of it", box=SIMPLE_HEAD)
        for probe in sandbox.probes:
            held = Text("held", style="green") if probe.contained else Text("GOT THROUGH", style="bold red")
            table.add_row(Text(f"{probe.id} {probe.name}"), held, Text(clipped(probe.evidence)))
        if sandbox.probes:
            console.print(table)
        console.print(Text(sandbox.verdict, style="bold green" if sandbox.passed else "bold red"), soft_wrap=True)
    else:
        most_alike = len(verifier.summary.misses) if cases else 2
        show_audit(verifier.title, verifier.summary, verifier.explanations, most_alike)
    if not result.passed:
        raise typer.Exit(1)


def show_audit(title: str, summary: "Summary", explanations: Sequence[Sequence[str]], most_alike: int) -> None:
    """Print the result of an audit: one explanation per miss, in their order; of misses alike at most `most_alike`."""
    from groupwise.checks.audit.summary import agreement_line, milliseconds, outcomes, tally, verdict_line
    from groupwise.verifiers.extraction import clipped

    rates = ("right", "false positives", "false negatives")
    table = table_of("", right=rates, title=title, box=SIMPLE_HEAD, caption="rates in %, with 95 % intervals")
    for name, group in summary.groups.items():
        table.add_row(*_cells(name, group))
    if len(summary.groups) > 1:
        table.add_section()
        table.add_row(*_cells("all", tally(summary.decided)), style="bold")
    console.print(table)
    totals: Counter[tuple[str, str]] = Counter()
    for result, lines in zip(summary.misses, explanations, strict=True):
        kind = (str(result.miss), result.case.group)
        totals[kind] += 1
        if totals[kind] <= most_alike:
            console.print(miss(result, lines), soft_wrap=True, highlight=False)
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


def _cells(name: str, counts: dict[str, Any]) -> list[Text | str]:
    from groupwise.checks.audit.summary import others, share

    rates = [
        Text(f"{rate['count']}   {share(rate).replace(' %', '')}", style="red" if rate["count"] else "")
        if rate["of"]
        else "–"
        for rate in (counts["false_positives"], counts["false_negatives"])
    ]
    events = Text(name).append(f"\n{others(counts)}" if others(counts) else "", style="dim")
    return [events, f"{counts['right']}/{counts['decided']}", *rates]


def miss(result: "Result", lines: Sequence[str]) -> Text:
    """Return a wrong verdict in a few lines, with the steps that led to it."""
    from groupwise.verifiers.extraction import clipped

    case = result.case
    text = Text(f"{result.miss}", style="red").append(f"  {case.group}, {case.name}\n", style="bold")
    text.append(f"  reference {clipped(case.problem.reference)}\n  completion {clipped(case.text)}\n")
    text.append(f"  {result.verdict.outcome} in {1000 * result.seconds:,.1f} ms", style="yellow")
    for number, line in enumerate(lines or [result.verdict.evidence], start=1):
        text.append(f"\n  {number}. {line}", style="dim")
    return text
