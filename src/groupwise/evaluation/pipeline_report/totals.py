"""The pipeline as a whole: one sentence, what it cost, what came from what."""

from collections import Counter

from groupwise.evaluation.pipeline_report.data import BASE, PipelineData, Stage
from groupwise.evaluation.pipeline_report.stages import in_minutes, origin
from groupwise.evaluation.pipeline_report.table import NOTHING, Cell, Column, Line, Table

WHAT = {"model": "model", "reward_model": "reward model", "data": "data set"}


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
    note = "The fingerprint is that of a stage's settings, inputs and code; the hash is that of what it made."
    return Table("Lineage", note, "stage", columns, tuple(_lineage(stage) for stage in data.stages))


def _lineage(stage: Stage) -> Line:
    made_by, made_from = stage.algorithm or stage.kind, ", ".join(stage.inputs)
    shown = (made_by, made_from, stage.state, stage.output, stage.fingerprint, stage.output_hash)
    return Line(stage.name, stage.makes, tuple(Cell(one or NOTHING) for one in shown))


def description(data: PipelineData) -> str:
    """The pipeline in one sentence."""
    stages = [stage for stage in data.stages if stage.name != BASE]
    made = Counter(stage.makes for stage in stages)
    counted = [f"{made[what]} {name}{'s' * (made[what] > 1)}" for what, name in WHAT.items() if made[what]]
    done = sum(stage.state == "finished" for stage in stages)
    state = "all finished" if done == len(stages) else f"{done} finished so far"
    last = data.policies[-1]
    return f"{len(stages)} stages, {state}: {', '.join(counted)}. It ends with {last.name}, {origin(data, last)}."
