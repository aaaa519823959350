"""The pages of audits: of a verifier, and of the sandbox."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.checks.audit.sandbox import SandboxAudit
from groupwise.checks.audit.summary import Summary, outcomes
from groupwise.checks.audit.verifier import Audit
from groupwise.checks.audit.wording import agreement_line, milliseconds, others, share, verdict_line
from groupwise.pages.html import render
from groupwise.pages.words import Tile
from groupwise.runs.atomic import write_file
from groupwise.verifiers.extraction import clipped

MAX_MISSES = 50
"""Misses that the page shows; the JSON file beside it has all."""


def write_audit_report(audit: Audit | SandboxAudit, path: Path) -> None:
    """Write the page of an audit, and beside it the same as JSON (the path with `.json` for its suffix)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, _page(audit).encode("utf-8", errors="backslashreplace"))
    write_file(path.with_suffix(".json"), json.dumps(audit.as_dict(), indent=1).encode())


def _page(audit: Audit | SandboxAudit) -> str:
    if isinstance(audit, Audit):
        return audit_page(
            audit.title, audit.summary, audit.explanations, {"recipe": audit.recipe, "cases": audit.cases}
        )
    return render(
        "sandbox.html", title="audit of the sandbox", description=audit.verdict, probes=audit.probes, clipped=clipped
    )


def audit_page(title: str, summary: Summary, explanations: Sequence[Sequence[str]], settings: Mapping[str, str]) -> str:
    """The page of a verifier's audit; one explanation per miss, in their order."""
    return render(
        "audit.html",
        title=title,
        description=verdict_line(summary),
        tiles=_tiles(summary),
        groups=summary.groups,
        others=others,
        share=share,
        misses=list(zip(summary.misses, explanations, strict=True))[:MAX_MISSES],
        num_misses=len(summary.misses),
        clipped=clipped,
        facts=_facts(summary),
        settings=settings,
    )


def _tiles(summary: Summary) -> list[Tile]:
    total, latency = summary.total, summary.latency_ms
    return [
        Tile("decided cases right", f"{total.right} of {total.decided}", share(total.share_right)),
        Tile("false positives", f"{total.false_positives} of {total.to_refuse}", share(total.false_positive_rate)),
        Tile("false negatives", f"{total.false_negatives} of {total.to_accept}", share(total.false_negative_rate)),
        Tile("latency, p99", f"{latency.get('p99', math.nan):,.1f} ms", milliseconds(latency)),
    ]


def _facts(summary: Summary) -> list[tuple[str, str, str]]:
    """Name, value, meaning."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes(summary.undecided).items())
    undecided = f"{len(summary.undecided)} cases: {counts}" if counts else "none"
    return [
        ("undecided", undecided, "Any verdict will do: projects differ on these, and they never decide."),
        ("latency", milliseconds(summary.latency_ms), "Wall-clock time of one verdict, one at a time."),
        (
            "second opinion",
            agreement_line(summary) or "none",
            "A checker that shares no code with the verifier.",
        ),
    ]
