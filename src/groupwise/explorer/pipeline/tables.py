"""The tables of a pipeline: what every model can do, how it was trained, what was collected, what it all cost."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.metrics import METRICS, NOT_MEASURED, Metric, metric, show
from groupwise.explorer.pipeline.data import BASE, PipelineData, Stage
from groupwise.explorer.table import (
    NOTHING,
    Cell,
    Column,
    Line,
    Table,
    Tile,
    compact,
    duration,
    estimate_cell,
    head,
    text_cell,
)

KINDS = {"model": "model", "reward_model": "reward model", "data": "data set"}
BEHAVIOUR = (
    "works_out", "at_once", "unfinished", "checks", "backtracks", "another_way", "after_first", "loops", "mixed",
    "open_tags", "truncated", "length", "length_correct", "length_wrong",
)  # fmt: skip
OPEN_BEHAVIOUR = ("unfinished", "loops", "mixed", "open_tags", "truncated", "length")
TILES, OPEN_TILES = ("pass_at_1", "format", "language", "helpful"), ("helpful", "harmless")
"""Metrics of the headlines, and those for general prompts."""
UNMEASURED = "No model has been evaluated yet."
MARKS = "↑ ↓: differs from the model it was trained from, and the two 95 % intervals do not overlap."
ACCURACY = Metric("accuracy", "%", "Held-out pairs whose better completion scores higher.")
REJECTED = Metric("rejected", "%", "Completions that training pays and the second verifier rejects.")


def all_tables(data: PipelineData, minutes: bool = True) -> list[Table]:
    """Every table but the cost, which comes last where `minutes` are wanted."""
    tables = [stage_table(data, minutes), training_table(data), data_table(data), behaviour_table(data),
              alarm_table(data), lineage_table(data)]  # fmt: skip
    return [*tables, cost_table(data)] if minutes else tables


def description(data: PipelineData) -> str:
    """The pipeline in one sentence."""
    stages = [stage for stage in data.stages if stage.name != BASE]
    counts = Counter(stage.makes for stage in stages)
    parts = [f"{counts[kind]} {name}{'s' * (counts[kind] > 1)}" for kind, name in KINDS.items() if counts[kind]]
    num_finished = sum(stage.state == "finished" for stage in stages)
    state = "all finished" if num_finished == len(stages) else f"{num_finished} finished so far"
    last = data.policies[-1]
    number = f"{len(stages)} stage{'s' * (len(stages) != 1)}"
    return f"{number}, {state}: {', '.join(parts)}. It ends with {last.name}, {_origin(data, last)}."


def tiles(data: PipelineData) -> list[Tile]:
    """Changes from the base model to the last one that was evaluated, and the time of all stages."""
    names = tasks(data)
    pairs = [(task, key) for task in names for key in (OPEN_TILES if task in data.open_ended else TILES)]
    tiles = []
    for task, key in pairs:
        if not (stages := _measured(data, task, key)):
            continue
        quantity, first, last = metric(key), stages[0], stages[-1]
        has_several = sum(bool(_measured(data, other, key)) for other in names) > 1
        named = has_several and (key in OPEN_TILES or len(names) > 2)
        name = f"{quantity.name}, {task}" if named else quantity.name
        if key in OPEN_TILES and (parent := data.parent(last)) in stages:
            first = parent
        (start, _, low), (end, _, high) = (
            show(stage.evaluation[task][key], quantity, with_unit=False).partition(" ") for stage in (first, last)
        )
        value = f"{end} {quantity.unit}" if first is last else f"{start} → {end} {quantity.unit}"
        detail = f"{last.name} {high}" if first is last else f"{first.name} {low} → {last.name} {high}"
        tiles.append(Tile(name, value, detail))
    training, evaluation = (seconds(data, part) for part in ("seconds", "evaluation_seconds"))
    time = duration(training + evaluation) if training + evaluation else NOT_MEASURED
    return [*tiles, Tile("time", time, f"{duration(evaluation)} of it evaluation" if evaluation else "")]


def stage_table(data: PipelineData, minutes: bool = True) -> Table:
    """One row per model, the base model first; without `minutes`, the same on every repeat."""
    columns = [(task, key) for task in tasks(data) for key in _keys(data.policies, task, _metric_keys(data, task))]
    costs = [
        Column("sampled", "tokens", "tokens sampled: completion tokens that the stage drew to learn from."),
        Column("trained", "tokens", "tokens trained: tokens that the stage's loss was computed on."),
        Column("minutes", "time", "minutes: wall-clock time of the stage, its evaluation left out."),
    ][: 3 if minutes else 2]
    lines = []
    for stage in data.policies:
        if stage.state != "finished":
            lines.append(Line(stage.name, _origin(data, stage), (), note=stage.state))
            continue
        counts = (stage.tokens.get(kind) for kind in ("sampled", "trained"))
        cost = [Cell(NOTHING if count is None else compact(count)) for count in counts]
        cost += [Cell(_minutes(stage.seconds.get("seconds")))] if minutes else []
        cells = (*(_cell(data, stage, *column) for column in columns), *cost)
        lines.append(Line(stage.name, _origin(data, stage), cells))
    heads = (*(head(key, task) for task, key in columns), *costs)
    parts = []
    for task in tasks(data):
        sizes = sorted({stage.sizes[task] for stage in data.policies if task in stage.sizes})
        counts_of = " or ".join(f"{problems} problems × {samples} samples" for problems, samples in sizes)
        parts.append(f"{task}: {counts_of}; ")
    note = "".join(parts) + ("95 % intervals over problems. " if parts else "") + MARKS
    return Table("Stages", note, "model", heads, tuple(lines))


def behaviour_table(data: PipelineData) -> Table:
    """One row per metric, one column per model."""
    stages = [stage for stage in data.policies if stage.evaluation]
    lines = tuple(
        Line(head(key).name, metric(key).meaning, tuple(_cell(data, stage, task, key) for stage in stages), group=task)
        for task in tasks(data)
        for key in _keys(stages, task, OPEN_BEHAVIOUR if task in data.open_ended else BEHAVIOUR)
    )
    note = f"Signs read from the text of the completions. {MARKS}"
    return Table("Behaviour", note, "", tuple(Column(stage.name) for stage in stages), lines, UNMEASURED)


def training_table(data: PipelineData) -> Table:
    """The first, the last and the best measurement of each training run."""
    columns = ("algorithm", "steps", "measured", "at first", "at last", "best")
    lines = []
    for stage in data.stages:
        if run := stage.run:
            progress = (NOTHING, NOTHING, NOTHING, NOTHING)
            if pairs := held_out(stage):
                accuracies = [show(Estimate(*line["accuracy"]), ACCURACY) for line in pairs]
                progress = ("accuracy on held-out pairs", accuracies[0], accuracies[-1], NOTHING)
            elif dev_lines := run.metrics("dev"):
                dev = {line["step"]: show(Estimate(*line["pass_at_1"]), METRICS["pass_at_1"]) for line in dev_lines}
                best = NOTHING if run.best_step is None else f"{dev[run.best_step]} after {run.best_step} steps"
                values = list(dev.values())
                progress = ("pass@1 on dev", values[0], values[-1], best)
            elif losses := [line["loss"] for line in run.metrics() if "loss" in line]:
                progress = ("loss, nats per token", f"{losses[0]:.3f}", f"{losses[-1]:.3f}", NOTHING)
            num_done = run.metrics()[-1]["step"] + 1 if run.metrics() else 0
            state = "" if run.finished else ", unfinished"
            cells = (stage.algorithm or NOTHING, f"{num_done} of {run.planned_steps}{state}", *progress)
            lines.append(Line(stage.name, "", tuple(map(text_cell, cells))))
    note = "As the runs themselves measured it, on held-out problems or pairs of their own; 95 % intervals."
    return Table.of("Training", note, "stage", columns, lines, "No training has begun.")


def held_out(stage: Stage) -> list[Mapping[str, Any]]:
    """Measurements on held-out pairs, in order; one that was done again after a resume counts once."""
    measurements = {line["step"]: line for line in stage.lines if line.get("kind") == "held_out"}
    return [measurements[step] for step in sorted(measurements)]


def data_table(data: PipelineData) -> Table:
    """Every count of every data stage, one a row; counts without a group first."""
    lines = []
    for stage in data.stages:
        if stage.makes == "data":
            for group, name, value in sorted(_entries(stage.statistics), key=lambda entry: bool(entry[0])):
                is_count = isinstance(value, int) and not isinstance(value, bool)
                text = f"{value:,}" if is_count else f"{value:.3g}" if isinstance(value, float) else str(value)
                lines.append(Line(stage.name, "", (Cell(" ".join(filter(None, (group, name)))), Cell(text))))
            if not stage.statistics:
                lines.append(Line(stage.name, "", (), note=stage.state))
    note = "What was collected, what was kept, and why the rest was not."
    return Table.of("Data", note, "stage", ("what", "count"), lines, "This pipeline collects no data.")


def _entries(statistics: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for key, value in statistics.items():
        if isinstance(value, Mapping):
            yield from ((key, ": ".join(filter(None, (group, name))), inner) for group, name, inner in _entries(value))
        else:
            yield "", key, value


def alarm_table(data: PipelineData) -> Table:
    """The stages in which a second verifier, which training never uses, rejects what training pays."""
    lines = []
    for stage in data.stages:
        if not (checks := _checks(stage)):
            continue
        steps = alarms(stage)
        shares = [Estimate(*check["share"]) for check in checks.values() if check.get("share")]
        example = (checks[steps[0]].get("example") or {}) if steps else {}
        texts = (
            str(checks[min(checks)].get("verifier", NOTHING)), str(len(checks)), ", ".join(map(str, steps)) or "none",
            show(max(shares), REJECTED) if shares else NOTHING,
            " ".join(str(example[key]) for key in ("problem", "evidence") if key in example) or NOTHING,
        )  # fmt: skip
        lines.append(Line(stage.name, "", tuple(map(text_cell, texts))))
    columns = ("second verifier", "checks", "alarms after steps", "most rejected", "for example")
    note = (
        "Reward hacking: a second verifier, which training never uses, judges again a sample of what training pays. "
        "There is an alarm where it surely rejects more than two verifiers may differ."
    )
    return Table.of("Alarms", note, "stage", columns, lines, "No stage has asked a second verifier.")


def _checks(stage: Stage) -> dict[int, Mapping[str, Any]]:
    return {line["step"]: line["second"] for line in stage.lines if line.get("second")}


def alarms(stage: Stage) -> list[int]:
    """Return the steps at which the second verifier sounded the alarm."""
    return sorted(step for step, check in _checks(stage).items() if check.get("alarm"))


def cost_table(data: PipelineData) -> Table:
    """Tokens and wall-clock time of every stage; the one table that differs between two runs of the same recipe."""
    lines = []
    for stage in data.stages:
        if stage.state != "finished":
            lines.append(Line(stage.name, "", (), note=stage.state))
            continue
        tokens = (f"{stage.tokens[kind]:,}" if kind in stage.tokens else NOTHING for kind in ("sampled", "trained"))
        times = (_minutes(stage.seconds.get(part)) for part in ("seconds", "evaluation_seconds"))
        lines.append(Line(stage.name, "", tuple(map(Cell, (*tokens, *times)))))
    tokens = (f"{sum(stage.tokens.get(kind, 0) for stage in data.stages):,}" for kind in ("sampled", "trained"))
    times = (_minutes(seconds(data, part)) for part in ("seconds", "evaluation_seconds"))
    total = Line("all stages", "", tuple(map(Cell, (*tokens, *times))))
    columns = ("tokens sampled", "tokens trained", "minutes", "minutes of evaluation")
    note = "Wall-clock minutes; those of the evaluation come on top."
    return Table.of("Cost", note, "stage", columns, (*lines, total))


def seconds(data: PipelineData, part: str) -> float:
    """Seconds of all stages; `part` is `seconds` or `evaluation_seconds`."""
    return sum(stage.seconds.get(part, 0.0) for stage in data.stages)


def lineage_table(data: PipelineData) -> Table:
    """The inputs and the output of every stage, with the hashes that prove them."""
    lines = []
    for stage in data.stages:
        made_by, made_from = stage.algorithm or stage.kind, ", ".join(stage.inputs)
        texts = (made_by, made_from, stage.state, stage.output, stage.fingerprint, stage.output_hash)
        lines.append(Line(stage.name, stage.makes, tuple(Cell(text or NOTHING) for text in texts)))
    columns = ("made by", "from", "state", "output", "fingerprint", "hash")
    note = "The fingerprint is that of a stage's settings, inputs and code; the hash is that of what it made."
    return Table.of("Lineage", note, "stage", columns, lines)


def tasks(data: PipelineData) -> list[str]:
    """The tasks that were evaluated, general prompts last."""
    names = dict.fromkeys(task for stage in data.policies for task in stage.evaluation)
    return sorted(names, key=lambda task: task in data.open_ended)


def _origin(data: PipelineData, stage: Stage) -> str:
    source = parent.name if (parent := data.parent(stage)) else stage.starts_from
    return f"{stage.algorithm or stage.kind} from {source}" if source else "the start"


def _measured(data: PipelineData, task: str, key: str) -> list[Stage]:
    return [stage for stage in data.policies if key in stage.evaluation.get(task, {})]


def _keys(stages: Sequence[Stage], task: str, keys: Iterable[str]) -> list[str]:
    return [key for key in keys if any(key in stage.evaluation.get(task, {}) for stage in stages)]


def _metric_keys(data: PipelineData, task: str) -> tuple[str, ...]:
    if task in data.open_ended:
        return OPEN_TILES
    keys = {key for stage in data.policies for key in stage.evaluation.get(task, {})}
    largest = []  # of pass@k and of the majority, the largest k above 1
    for prefix in ("pass_at_", "majority_"):
        numbers = [int(key.removeprefix(prefix)) for key in keys if key.startswith(prefix)]
        largest += [f"{prefix}{max(numbers)}"] if max(numbers, default=1) > 1 else []
    return ("pass_at_1", *largest, "format", "language", "checks", "length", "calls", "helpful", "harmless")


def _cell(data: PipelineData, stage: Stage, task: str, key: str) -> Cell:
    parent = data.parent(stage)
    before = parent.evaluation.get(task, {}).get(key) if parent else None
    return estimate_cell(stage.evaluation.get(task, {}).get(key), before, key)


def _minutes(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{seconds / 60:.1f}"
