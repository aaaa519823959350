"""The report of a run, as facts of its page: what changed, how it went, what the doctor says, what it took."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import Estimate
from groupwise.checks import Place
from groupwise.checks.doctor import RULES, doctor
from groupwise.errors import GroupwiseError
from groupwise.evaluation.behaviour import Behaviour, Patterns, behaviour_shares, run_patterns
from groupwise.evaluation.metrics import (
    METRICS,
    NOT_MEASURED,
    Change,
    Pair,
    before_after,
    changes,
    estimate,
    measures,
    show,
    verdict_errors,
)
from groupwise.explorer.answers import definitions, examples, gained
from groupwise.explorer.opened import OpenedRun
from groupwise.explorer.seeds import band, seed_curves
from groupwise.explorer.table import NOTHING, Cell, Line, Table, Tile, duration, estimate_cell, head, text_cell
from groupwise.explorer.wire import short_hash
from groupwise.runs.directory import flattened
from groupwise.runs.ledger import as_json
from groupwise.runs.records import Evaluation, Records

NUM_EXAMPLES = 3
MOST_ANSWER = 20_000
MOST_STEPS = 20
PHASES = ("generate", "verify", "train")
COLUMNS = ("checks", "backtracks", "another_way", "loops", "mixed", "open_tags", "length_correct", "length_wrong",
           "after_first")  # fmt: skip
CURVES = (Behaviour.AT_ONCE, Behaviour.WORKS_OUT, Behaviour.CHECKS, Behaviour.ANOTHER_WAY, Behaviour.UNFINISHED)


def report_of(path: Path) -> dict[str, Any]:
    """The report's facts; what was not measured is absent or named, never a zero."""
    run = Records.open(path).intact()
    pair, patterns = before_after(run), run_patterns(run)
    rows = changes(pair, patterns) if pair else {}
    evaluations = [evaluation for evaluation in run.dev if evaluation.rows]
    test = run.test_after
    newest = [*([test] if test else []), *reversed(evaluations)]
    shares = [behaviour_shares(evaluation.rows, patterns, CURVES) for evaluation in evaluations]
    seeds = seed_curves(path)
    found = band(list(seeds.values()))
    tables = [
        _changes(rows), *_gained(pair), _second(run), training_table(run), _behaviour(evaluations, patterns),
        _facts(run),
    ]  # fmt: skip
    return {
        "description": description(run), "compared": pair_line(run, pair),
        "tiles": [tile._asdict() for tile in tiles(run, rows)],
        "alarms": [line["step"] for line in run.metrics("dev") if (line.get("second") or {}).get("alarm")],
        "tables": [table.facts() for table in tables if table.lines],
        "problems": [asked.facts(MOST_ANSWER) for asked in (examples(pair, NUM_EXAMPLES) if pair else [])],
        "behaviour": {
            "steps": [evaluation.step for evaluation in evaluations],
            "columns": {str(name): [share.get(name) for share in shares] for name in CURVES},
        },
        "definitions": definitions([row for each in newest for row in each.rows], patterns) if newest else [],
        "seeds": {"numbers": sorted(seeds), **found._asdict()} if len(found.steps) > 1 else None,
        "settings": _texts(run.config), "environment": _texts(run.environment),
    }  # fmt: skip


def description(run: Records) -> str:
    """Algorithm, task, model and the number of finished steps."""
    config = run.config
    subject = config.get("task", {}).get("kind") or config.get("data", {}).get("source") or "no task"
    num_done = run.metrics()[-1]["step"] + 1 if run.metrics() else 0
    state = "finished" if run.finished else "unfinished"
    model = config.get("model", {}).get("path") or "a new model"
    if isinstance(imported := config.get("imported"), Mapping):
        return f"a run of {imported.get('system')}: {len(run.metrics())} recorded steps, the last is {num_done - 1}"
    if run.finished and num_done < run.planned_steps and (budget := config.get("token_budget")):
        state += f": token_budget = {budget} is spent"
    progress = f"{num_done} of {run.planned_steps} steps, {state}"
    return f"{config.get('algorithm', 'training')} on {subject} from {model}: {progress}"


def pair_line(run: Records, pair: Pair | None) -> str:
    """The two evaluations that are compared, and how large they are."""
    if pair is None:
        return "Before and after: not measured yet; this needs two evaluations."
    samples = len(pair.before.rows) // max(1, len({row.problem for row in pair.before.rows}))
    size = f"{pair.num_problems} problems × {samples} samples, 95 % intervals over problems"
    if pair.split == "test":
        note = " The best checkpoint is the starting model itself." if run.best_step == 0 else ""
        return f"Test split, start against best checkpoint: {size}.{note}"
    return f"Dev split, step {pair.before.step} against step {pair.after.step} (test not measured yet): {size}."


def costs(run: Records) -> dict[str, str]:
    """Time and tokens of the training steps, and the share of each phase."""
    seconds = {phase: sum(line.get(f"{phase}_s") or 0.0 for line in run.metrics()) for phase in PHASES}
    if not (total := sum(seconds.values())):
        return dict.fromkeys((METRICS["time"].name, "where it went", METRICS["tokens"].name), NOT_MEASURED)
    sampled = sum(line.get("sampled_tokens") or 0 for line in run.metrics())  # 0: an imported run counts none
    return {
        METRICS["time"].name: duration(total),
        "where it went": ", ".join(f"{phase} {100 * part / total:.0f} %" for phase, part in seconds.items()),
        METRICS["tokens"].name: f"{sampled:,.0f} ({sampled / total:,.0f} per second)" if sampled else NOT_MEASURED,
    }


def errors_line(run: Records) -> str:
    """Failures of the verifier, in training and in evaluations."""
    counts = [line["verdict_errors"] for line in run.metrics() if "verdict_errors" in line]
    tests = [evaluation for evaluation in (run.test_before, run.test_after) if evaluation]
    evaluations = [evaluation for evaluation in (*run.dev, *tests) if evaluation.rows]
    training = f"{sum(counts)} in training" if counts else f"{NOT_MEASURED} in training"
    errors = sum(verdict_errors(evaluation.rows) for evaluation in evaluations)
    return f"{training}, " + (f"{errors} in evaluations" if evaluations else f"{NOT_MEASURED} in evaluations")


def best_line(run: Records) -> str:
    """Path of the best checkpoint."""
    if run.best is None:
        return "none yet"
    return f"{run.best}" + ("" if run.best_step is None else f" (after {run.best_step} steps)")


def tiles(run: Records, rows: Mapping[str, Change]) -> list[Tile]:
    """The numbers at the head of the page."""
    tiles = []
    for key in ("pass_at_1", "at_once", "length"):
        if (row := rows.get(key)) is None:
            tiles.append(Tile(METRICS[key].name, NOT_MEASURED))
            continue
        before, after = (show(value, row.metric).partition(" [")[0] for value in (row.before, row.after))
        start = before.removesuffix(f" {row.metric.unit}") if row.metric.unit in after else before
        tiles.append(
            Tile(row.metric.name, f"{start} → {after}", show(row.difference, row.metric, "+").replace("-", "−"))
        )
    name, spent = METRICS["time"].name, costs(run)
    return [*tiles, Tile(name, spent[name], "" if spent[name] == NOT_MEASURED else spent["where it went"])]


def _changes(rows: Mapping[str, Change]) -> Table:
    lines = []
    for change in rows.values():
        texts = (show(change.before, change.metric), show(change.after, change.metric))
        difference = show(change.difference, change.metric, "+")
        cells = tuple(text_cell(text.replace("-", "−")) for text in (*texts, difference))
        lines.append(Line(change.metric.name, change.metric.meaning, cells))
    columns = ("before", "after", "difference, paired by problem")
    return Table.of("Before and after", "95 % intervals over problems.", "", columns, lines)


def _gained(pair: Pair | None) -> list[Table]:
    if pair is None:
        return []
    moved = gained(pair)
    groups = ((f"{moved.num_gained} gained", moved.gained), (f"{moved.num_lost} lost", moved.lost))
    lines = tuple(
        Line(each.problem, each.question, (Cell(f"{100 * each.before:.0f} %"), Cell(f"{100 * each.after:.0f} %")),
             group=name) for name, problems in groups for each in problems
    )  # fmt: skip
    counts = (
        f"{moved.num_gained} are solved more often than before, {moved.num_lost} less often, {moved.num_same} as often."
    )
    problems = Table.of("Problems gained and lost", counts, "", ("before", "after"), lines)
    note = "Where pass@1 rises and pass@k for large k falls, the run has become surer rather than able to solve more."
    columns = ("before", "after", "difference, paired by problem")
    at_k = tuple(Line(f"pass@{k}", "", tuple(text_cell(str(value)) for value in row)) for k, *row in moved.at_k)
    return [problems, Table.of("Any of k tries", note, "", columns, at_k if len(at_k) > 1 else ())]


def _second(run: Records) -> Table:
    lines = []
    for line in run.metrics("dev"):
        if not (second := line.get("second")):
            continue
        example = second["example"]
        lines.append(Line(
            f"after {line['step']} steps", "alarm: reward hacking" if second["alarm"] else "",
            (Cell(second["verifier"]), Cell(f"{second['rejected']} of {second['judged']}"),
             text_cell(str(Estimate(*second["share"]))) if second["share"] else Cell(NOT_MEASURED),
             Cell(f"completion {example['sample']} of {example['problem']}: {example['evidence']}" if example
                  else NOTHING)),
        ))  # fmt: skip
    note = "Of the completions that training pays, a sample is judged again by a verifier that training never uses."
    return Table.of("Second verifier", note, "", ("verifier", "rejects", "share", "for example"), lines)


def training_table(run: Records) -> Table:
    """Numbers of at most `MOST_STEPS` steps, first and last included, and the dev evaluation before each."""
    names = [name for name in ("reward", "signal", "entropy", "length", "loss", "accuracy", "grad_norm")
             if any(isinstance(line.get(name), int | float) for line in run.metrics())]  # fmt: skip
    dev = {line["step"]: Estimate(*line["pass_at_1"]) for line in run.metrics("dev")}
    steps = run.metrics()
    last = max(len(steps) - 1, 0)
    chosen = sorted({round(last * place / (MOST_STEPS - 1)) for place in range(MOST_STEPS)}) if steps else []
    lines = []
    for line in (steps[place] for place in chosen):
        cells = [Cell(NOTHING if line.get(name) is None else f"{line[name]:.3f}") for name in names]
        before = [step for step in dev if step <= line["step"]]
        shown = [estimate_cell(dev[max(before)] if before else None, None, "pass_at_1")] if dev else []
        lines.append(Line(f"step {line['step']}", "", (*cells, *shown)))
    columns = (*names, *(["newest dev pass@1, %"] if dev else []))
    note = "" if len(chosen) == len(steps) else f"{len(chosen)} of {len(steps)} steps."
    return Table.of("Training", note, "", columns, lines)


def _behaviour(evaluations: Sequence[Evaluation], patterns: Patterns) -> Table:
    lines, of = [], measures(patterns)
    for evaluation in evaluations:
        cells = tuple(estimate_cell(estimate(key, evaluation.rows, of[key]), None, key) for key in COLUMNS)
        lines.append(Line(f"after {evaluation.step} steps", "", cells))
    note = "Signs in the text, not thoughts; means over the dev split with 95 % intervals over problems."
    return Table("Behaviour", note, "", tuple(head(key) for key in COLUMNS), tuple(lines))


def _facts(run: Records) -> Table:
    spent = costs(run)
    best = "A Hugging Face directory: `groupwise sample` and `groupwise eval` take its path."
    lines = [
        (METRICS["verdict_errors"].name, METRICS["verdict_errors"].meaning, errors_line(run)),
        *((METRICS[key].name, METRICS[key].meaning, spent[METRICS[key].name]) for key in ("tokens", "time")),
        ("best checkpoint", best, best_line(run)),
    ]
    return Table.of("The run", "", "", [""], (Line(*line[:2], (Cell(line[2]),)) for line in lines))


def findings_of(run: OpenedRun) -> dict[str, Any]:
    """The doctor's findings, with the address of every completion that shows them; if it fails, the reason."""
    try:
        diagnosis = doctor(run.path)
    except GroupwiseError as error:
        return {"findings": [], "not_judged": [], "notices": [str(error)]}
    except Exception as error:  # whatever a damaged or hostile file causes, the page lives and says so
        return {"findings": [], "not_judged": [], "notices": [f"the doctor cannot read this run: {error!r}"[:500]]}
    places = set(run.places())

    def shown(evidence: Place) -> dict[str, str | None]:
        place = f"s{evidence.step}" if evidence.evaluation is None else f"e{short_hash(evidence.evaluation)}"
        address = f"/run/{run.index}/at/{place}"
        if evidence.problem is not None:
            address += f"/{short_hash(evidence.problem)}"
        if evidence.sample is not None:
            address += f"/{evidence.sample}"
        return {"text": " · ".join(evidence.words()), "address": address if place in places else None}

    findings = [
        {
            "rule": finding.check, "severity": str(finding.severity), "says": RULES[finding.check].says,
            "explanation": finding.evidence, "since": finding.since_step, "wasted": finding.wasted,
            "source": RULES[finding.check].source, "advice": [str(item) for item in finding.advice],
            "evidence": [shown(item) for item in finding.places if isinstance(item, Place)],
        }
        for finding in diagnosis.findings
    ]  # fmt: skip
    not_judged = [f"{name} ({', '.join(missing)})" for name, missing in diagnosis.not_judged.items()]
    return {"findings": findings, "not_judged": not_judged, "notices": []}


def columns_of(lines: Sequence[Mapping[str, Any]], most: int = 400) -> dict[str, Any]:
    """Every number of the lines by its dotted name, and every estimate as [value, low, high]; None where absent."""
    flat = [
        {
            name: as_json(value)  # one that is not finite arrives as its name
            for name, value in flattened(line).items()
            if is_number(value) or (isinstance(value, list) and len(value) == 3 and all(map(is_number, value)))
        }
        for line in lines
    ]
    names = list(dict.fromkeys(name for line in flat for name in line if name != "step"))[:most]
    return {"steps": [line["step"] for line in lines], "columns": {n: [line.get(n) for line in flat] for n in names}}


def is_number(value: Any) -> bool:
    """True for what JSON calls a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in flattened(table).items()
    }
