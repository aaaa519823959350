"""`groupwise audit`: what an audit of a verifier found, on the terminal, as JSON or as a page."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from groupwise.audit.terminal import print_audit
from groupwise.audit.verifier import audit_verifier
from groupwise.cli.audit_report import write_report
from groupwise.pages.audit import audit_page


def run_audit(verifier: str, report: Path | None, as_json: bool, console: Console, **options: Any) -> bool:
    """Audit a verifier and print what was found; True when every decided case has its expected verdict.

    The options are those of `audit_verifier`.
    """
    with nullcontext() if as_json else console.status("judging completions"):
        found = audit_verifier(verifier, **options)
    if report:
        written = {"recipe": found.recipe, "cases": found.cases}
        content = audit_page(found.title, found.summary, found.explanations, written)
        write_report(report, content, found.as_dict())
    if as_json:
        print(json.dumps(found.as_dict(), indent=1))
        return found.passed
    most_alike = len(found.summary.misses) if options["cases"] else 2
    print_audit(found.title, found.summary, found.explanations, console, most_alike=most_alike)
    if report:
        console.print(f"Report: {report}", highlight=False)
    return found.passed
