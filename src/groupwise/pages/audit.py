"""The pages of audits: of a verifier, and of the sandbox."""

import math
from collections.abc import Mapping, Sequence

from groupwise.audit.summary import Summary, outcomes
from groupwise.audit.wording import agreement_line, milliseconds, others, share, verdict_line
from groupwise.pages.html import render
from groupwise.pages.words import Tile
from groupwise.sandbox.probes import ProbeResult
from groupwise.verifiers.extraction import clipped

MAX_MISSES = 50
"""Misses that the page shows; the JSON file beside it has all."""


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


def sandbox_page(line: str, probes: Sequence[tuple[str, ProbeResult]]) -> str:
    """The page of the sandbox's audit: a line that says what came out, and every program with what became of it."""
    return render("sandbox.html", title="audit of the sandbox", description=line, probes=probes, clipped=clipped)


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
