"""What the stages recorded on their way: training, data, alarms, costs, fingerprints."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import METRICS, Metric, show
from groupwise.evaluation.pipeline_report.data import BASE, PipelineData, Stage
from groupwise.evaluation.pipeline_report.stages import in_minutes, origin
from groupwise.evaluation.pipeline_report.table import NOTHING, Cell, Column, Line, Table
from groupwise.evaluation.run_data import RunData

WHAT = {"model": "model", "reward_model": "reward model", "data": "data set"}
ACCURACY = Metric("accuracy", "%", "Held-out pairs whose better completion scores higher.")
REJECTED = Metric("rejected", "%", "Completions that training pays and the second verifier rejects.")


def training_table(data: PipelineData) -> Table:
    """What each training run set out from and where it arrived."""
    columns = tuple(map(Column, ("algorithm", "steps", "measured", "at first", "at last", "best")))
    lines = tuple(_trained(stage, stage.run) for stage in data.stages if stage.run)
    note = "As the runs themselves measured it, on held-out problems or pairs of their own; 95 % intervals."
    return Table("Training", note, "stage", columns, lines)


def _trained(stage: Stage, run: RunData) -> Line:
    done = run.steps[-1]["step"] + 1 if run.steps else 0
    state = "" if run.finished else ", unfinished"
    cells = (stage.algorithm or NOTHING, f"{done} of {run.num_steps}{state}", *_progress(stage, run))
    return Line(stage.name, "", tuple(map(_cell, cells)))


def _progress(stage: Stage, run: RunData) -> tuple[str, ...]:
    """What was measured, and its first, last and best value."""
    pairs = held_out(stage)
    if pairs:
        found = [show(Estimate(*line["accuracy"]), ACCURACY) for line in pairs]
        return "accuracy on held-out pairs", found[0], found[-1], NOTHING
    if run.dev:
        dev = {one.step: show(Estimate(*one.line["pass_at_1"]), METRICS["pass_at_1"]) for one in run.dev}
        values = list(dev.values())
        best = NOTHING if run.best_step is None else f"{dev[run.best_step]} after {run.best_step} steps"
        return "pass@1 on dev", values[0], values[-1], best
    losses = [line["loss"] for line in run.steps if "loss" in line]
    if losses:
        return "loss, nats per token", f"{losses[0]:.3f}", f"{losses[-1]:.3f}", NOTHING
    return NOTHING, NOTHING, NOTHING, NOTHING


def _cell(shown: str) -> Cell:
    """A cell of a text that may end in an interval."""
    found = re.fullmatch(r"(.*) (\[[-+.\d, ]+\])(.*)", shown, re.DOTALL)
    return Cell(found[1] + found[3], found[2]) if found else Cell(shown)


def held_out(stage: Stage) -> list[Mapping[str, Any]]:
    """Measurements on held-out pairs, in order; one that was done again after a resume counts once."""
    found = {line["step"]: line for line in stage.lines if line.get("kind") == "held_out"}
    return [found[step] for step in sorted(found)]


class Bar(NamedTuple):
    """One number of a data stage's statistics."""

    group: str
    """`sources`, `kept`, `dropped`, ...; empty for a number that stands for itself."""
    name: str
    value: str
    share: float | None
    """Of the largest count of the stage, 0 to 1; None for what is no count."""


def bars(stage: Stage) -> list[Bar]:
    """Everything that a data stage counted."""
    entries = list(_entries(stage.statistics))
    largest = max((value for *_, value in entries if _is_count(value)), default=0)
    return [
        Bar(group, name, _number(value), value / largest if _is_count(value) and largest else None)
        for group, name, value in entries
    ]


def _entries(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in statistics.items():
        if isinstance(value, Mapping):
            yield from ((key, ": ".join(filter(None, (group, name))), one) for group, name, one in _entries(value))
        else:
            yield "", key, value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if _is_count(value):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def data_table(data: PipelineData) -> Table:
    """Every count of every data stage, one a row."""
    columns = (Column("what"), Column("count"))
    lines = [
        Line(stage.name, "", (Cell(" ".join(filter(None, (bar.group, bar.name)))), Cell(bar.value)))
        for stage in data_stages(data)
        for bar in bars(stage)
    ]
    waiting = [Line(stage.name, "", (), note=stage.state) for stage in data_stages(data) if not stage.statistics]
    return Table("Data", "What was collected, what was kept, and why the rest was not.", "stage", columns, (*lines, *waiting))


def data_stages(data: PipelineData) -> list[Stage]:
    """The stages that make data."""
    return [stage for stage in data.stages if stage.makes == "data"]


def alarm_table(data: PipelineData) -> Table:
    """Where a second verifier, which training never uses, rejects what training pays."""
    columns = tuple(map(Column, ("second verifier", "checks", "alarms after steps", "most rejected", "for example")))
    lines = tuple(_alarms(stage.name, checks) for stage in data.stages if (checks := _checks(stage)))
    note = (
        "Reward hacking: a second verifier, which training never uses, judges again a sample of what training pays. "
        "There is an alarm where it surely rejects more than two verifiers may differ."
    )
    return Table("Alarms", note, "stage", columns, lines)


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
    return Line(name, "", tuple(map(_cell, shown)))


def cost_table(data: PipelineData) -> Table:
    """Tokens and wall-clock time of every stage; the one table that differs between two runs of the same recipe."""
    columns = tuple(map(Column, ("tokens sampled", "tokens trained", "minutes", "minutes of evaluation")))
    lines = tuple(_cost(stage) for stage in data.stages)
    total = Line("all stages", "", tuple(map(Cell, _totals(data))))
    return Table("Cost", "Wall-clock minutes; those of the evaluation come on top.", "stage", columns, (*lines, total))


def _cost(stage: Stage) -> Line:
    if stage.state != "finished":
        return Line(stage.name, "", (), note=stage.state)
    tokens = (f"{stage.tokens[which]:,}" if which in stage.tokens else NOTHING for which in ("sampled", "trained"))
    minutes = (in_minutes(stage.seconds.get(which)) for which in ("seconds", "evaluation_seconds"))
    return Line(stage.name, "", tuple(map(Cell, (*tokens, *minutes))))


def _totals(data: PipelineData) -> tuple[str, ...]:
    tokens = (f"{sum(stage.tokens.get(which, 0) for stage in data.stages):,}" for which in ("sampled", "trained"))
    return (*tokens, *(in_minutes(seconds(data, which)) for which in ("seconds", "evaluation_seconds")))


def seconds(data: PipelineData, which: str) -> float:
    """Seconds of all stages; `which` is `seconds` or `evaluation_seconds`."""
    return sum(stage.seconds.get(which, 0.0) for stage in data.stages)


def lineage_table(data: PipelineData) -> Table:
    """What came from what, with the hashes that prove it."""
    columns = tuple(map(Column, ("made by", "from", "state", "output", "fingerprint", "hash")))
    return Table(
        "Lineage",
        "The fingerprint is that of the stage's settings and inputs; the hash is that of what it made.",
        "stage",
        columns,
        tuple(_lineage(stage) for stage in data.stages),
    )


def _lineage(stage: Stage) -> Line:
    made_by = stage.algorithm or stage.kind
    shown = (made_by, ", ".join(stage.inputs), stage.state, stage.output, stage.fingerprint[:16], stage.output_hash[:16])
    return Line(stage.name, stage.makes, tuple(Cell(one or NOTHING) for one in shown))


def description(data: PipelineData) -> str:
    """The pipeline in one sentence."""
    stages = [stage for stage in data.stages if stage.name != BASE]
    made = Counter(stage.makes for stage in stages)
    counted = [f"{made[what]} {name}{'s' * (made[what] > 1)}" for what, name in WHAT.items() if made[what]]
    done = sum(stage.state == "finished" for stage in stages)
    state = "all finished" if done == len(stages) else f"{done} finished so far"
    last = data.policies[-1]
    return f"{len(stages)} stages, {state}: {', '.join(counted)}. The last model is {last.name}, {origin(data, last)}."
