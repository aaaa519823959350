"""Alarms of reward hacking: where a second verifier rejects what training pays."""

from collections.abc import Mapping
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import Metric, show
from groupwise.evaluation.pipeline_report.data import PipelineData, Stage
from groupwise.evaluation.pipeline_report.table import NOTHING, Column, Line, Table, text_cell

REJECTED = Metric("rejected", "%", "Completions that training pays and the second verifier rejects.")


def alarm_table(data: PipelineData) -> Table:
    """Where a second verifier, which training never uses, rejects what training pays."""
    columns = tuple(map(Column, ("second verifier", "checks", "alarms after steps", "most rejected", "for example")))
    lines = tuple(_alarms(stage.name, checks) for stage in data.stages if (checks := _checks(stage)))
    note = (
        "Reward hacking: a second verifier, which training never uses, judges again a sample of what training pays. "
        "There is an alarm where it surely rejects more than two verifiers may differ."
    )
    return Table("Alarms", note, "stage", columns, lines, "No stage has asked a second verifier.")


def num_alarms(data: PipelineData) -> dict[str, int]:
    """Stages with alarms, and how many."""
    found = {stage.name: len(_alarm_steps(_checks(stage))) for stage in data.stages}
    return {name: count for name, count in found.items() if count}


def _checks(stage: Stage) -> dict[int, Mapping[str, Any]]:
    """What the second verifier said, by step; what was done again after a resume counts once."""
    return {line["step"]: line["second"] for line in stage.lines if line.get("second")}


def _alarm_steps(checks: Mapping[int, Mapping[str, Any]]) -> list[int]:
    return sorted(step for step, check in checks.items() if check.get("alarm"))


def _alarms(name: str, checks: Mapping[int, Mapping[str, Any]]) -> Line:
    steps = _alarm_steps(checks)
    shares = [Estimate(*check["share"]) for check in checks.values() if check.get("share")]
    most = show(max(shares), REJECTED) if shares else NOTHING
    example = (checks[steps[0]].get("example") or {}) if steps else {}
    shown = (
        str(checks[min(checks)].get("verifier", NOTHING)),
        str(len(checks)),
        ", ".join(map(str, steps)) or "none",
        most,
        " ".join(str(example[key]) for key in ("problem", "evidence") if key in example) or NOTHING,
    )
    return Line(name, "", tuple(map(text_cell, shown)))
