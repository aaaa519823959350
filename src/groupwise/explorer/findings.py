"""What the doctor says of a run, with the address of every completion that shows it."""

from pathlib import Path
from typing import Any

from groupwise.checks.doctor import RULES, doctor
from groupwise.checks.doctor.finding import Evidence, Finding
from groupwise.errors import GroupwiseError
from groupwise.explorer.opened import OpenedRun
from groupwise.explorer.wire import short_hash


def findings_of(run: OpenedRun) -> dict[str, Any]:
    """The findings as plain values; where the doctor cannot read the run, why."""
    try:
        diagnosis = doctor(run.path)
    except GroupwiseError as error:
        return {"findings": [], "not_judged": [], "notices": [str(error)]}
    except Exception as error:  # whatever a damaged or hostile file causes, the page lives and says so
        return {"findings": [], "not_judged": [], "notices": [f"the doctor cannot read this run: {error!r}"[:500]]}
    places = set(run.places())
    return {
        "findings": [_facts(run.index, places, finding) for finding in diagnosis.findings],
        "not_judged": [f"{name} ({', '.join(missing)})" for name, missing in diagnosis.not_judged.items()],
        "notices": [],
    }


def _facts(index: int, places: set[str], finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule, "severity": str(finding.severity), "says": RULES[finding.rule].says,
        "explanation": finding.explanation, "since": finding.since_step, "wasted": finding.wasted,
        "source": RULES[finding.rule].source,
        "advice": [f"{one.key}: {one.change}" if one.key else one.change for one in finding.advice],
        "evidence": [_shown(index, places, one) for one in finding.evidence],
    }  # fmt: skip


def _shown(index: int, places: set[str], evidence: Evidence) -> dict[str, str | None]:
    """A place in words, and its address where it was recorded."""
    place = f"s{evidence.step}" if evidence.evaluation is None else f"e{short_hash(evidence.evaluation)}"
    words = [evidence.evaluation or f"step {evidence.step}"]
    address = f"/run/{index}/at/{place}"
    if evidence.problem is not None:
        words.append(evidence.problem)
        address += f"/{short_hash(evidence.problem)}"
        if evidence.sample is not None:
            words.append(f"sample {evidence.sample}")
            address += f"/{evidence.sample}"
    return {"text": " · ".join(words), "address": address if place in places else None}


def stamp_of(path: Path) -> tuple[int, int]:
    """What changes when the run has gone on: size and time of its metrics."""
    try:
        stat = (path / "metrics.jsonl").stat()
    except OSError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns
