"""`groupwise audit`: its arguments and options, and what its help says."""

from pathlib import Path
from typing import Annotated

import typer

from groupwise.cli.app import Overrides, app, console


@app.command()
def audit(
    subject: Annotated[
        str, typer.Argument(help="A verifier's name, `path/to/file.py:function` of your own, or `sandbox`.")
    ],
    cases: Annotated[list[Path] | None, typer.Option(help="Labelled cases (JSON lines). Repeatable.")] = None,
    probes: Annotated[
        list[Path] | None, typer.Option(help="Programs for the sandbox (JSON lines). Repeatable.")
    ] = None,
    tier: Annotated[list[str] | None, typer.Option(help="Judge only cases of this tier. Repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="Task whose problems are attacked.")] = None,
    reference: Annotated[list[str] | None, typer.Option(help="A reference answer to attack. Repeatable.")] = None,
    problems: Annotated[int, typer.Option(min=1, help="Problems of the task to attack.")] = 4,
    overrides: Overrides = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Attack a verifier, your own reward function or the sandbox, or score labelled cases; report every wrong reward.

    The exit status is 0 only when every decided case has its expected verdict.

    A function of your own is `reward(prompt, completion, reference) -> float`; above 0.5 counts as correct.

    Examples:

        groupwise audit math

        groupwise audit math --cases cases.jsonl --tier core

        groupwise audit rewards.py:reward --task arithmetic

        groupwise audit sandbox --probes probes.jsonl
    """
    if subject == "sandbox":
        from groupwise.cli.audit import run_sandbox_audit

        passed = run_sandbox_audit(probes or [], overrides or [], json, console)
    else:
        from groupwise.cli.audit import run_audit

        passed = run_audit(
            subject, json, console, cases=cases or (), tiers=tier or (), task=task, references=reference or (),
            problems=problems, changes=overrides or (),
        )  # fmt: skip
    if not passed:
        raise typer.Exit(1)
