"""Words about a whole run that pages and the terminal share: what it was, what it cost, where its best is."""

from typing import NamedTuple

from groupwise.evaluation.compare import Pair
from groupwise.evaluation.metrics import METRICS, NOT_MEASURED, verdict_errors
from groupwise.evaluation.run_data import RunData

PHASES = ("generate", "verify", "train")


class Tile(NamedTuple):
    """One number at the head of a page, with its name and a detail; None where there is nothing more to say."""

    name: str
    value: str
    detail: str | None


def description(run: RunData) -> str:
    """Algorithm, task, model and how far the run is."""
    config = run.config
    subject = config.get("task", {}).get("kind") or config.get("data", {}).get("source") or "no task"
    num_done = run.steps[-1]["step"] + 1 if run.steps else 0
    state = "finished" if run.finished else "unfinished"
    model = config.get("model", {}).get("path") or "a new model"
    progress = f"{num_done} of {run.num_steps} steps, {state}"
    return f"{config.get('algorithm', 'training')} on {subject} from {model}: {progress}"


def pair_line(run: RunData, pair: Pair | None) -> str:
    """What is compared with what."""
    if pair is None:
        return "Before and after: not measured yet; this needs two evaluations."
    samples = len(pair.before.rows) // max(1, len({row.problem for row in pair.before.rows}))
    size = f"{pair.num_problems} problems × {samples} samples, 95 % intervals over problems"
    if pair.split == "test":
        note = " The best checkpoint is the starting model itself." if run.best_step == 0 else ""
        return f"Test split, start against best checkpoint: {size}.{note}"
    return f"Dev split, step {pair.before.step} against step {pair.after.step} (test not measured yet): {size}."


def costs(run: RunData) -> dict[str, str]:
    """Time and tokens of the training steps, and where the time went."""
    seconds = {phase: sum(line.get(f"{phase}_s") or 0.0 for line in run.steps) for phase in PHASES}
    total = sum(seconds.values())
    if not total:
        return dict.fromkeys((METRICS["time"].name, "where it went", METRICS["tokens"].name), NOT_MEASURED)
    sampled = sum(line["sampled_tokens"] for line in run.steps)
    return {
        METRICS["time"].name: duration(total),
        "where it went": ", ".join(f"{phase} {100 * part / total:.0f} %" for phase, part in seconds.items()),
        METRICS["tokens"].name: f"{sampled:,.0f} ({sampled / total:,.0f} per second)",
    }


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(59.4), duration(119.7), duration(3725)
    ('59.4 s', '2 min 00 s', '1 h 02 min')
    """
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        return f"{round(seconds) // 60} min {round(seconds) % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def errors_line(run: RunData) -> str:
    """How often the verifier failed, in training and in evaluations."""
    counts = [line["verdict_errors"] for line in run.steps if "verdict_errors" in line]
    tests = [evaluation for evaluation in (run.test_before, run.test_after) if evaluation]
    evaluations = [evaluation for evaluation in (*run.dev, *tests) if evaluation.rows]
    training = f"{sum(counts)} in training" if counts else f"{NOT_MEASURED} in training"
    errors = sum(verdict_errors(evaluation.rows) for evaluation in evaluations)
    return f"{training}, " + (f"{errors} in evaluations" if evaluations else f"{NOT_MEASURED} in evaluations")


def best_line(run: RunData) -> str:
    """Where the best checkpoint is."""
    if run.best_checkpoint is None:
        return "none yet"
    if run.best_step is None:
        return str(run.best_checkpoint)
    return f"{run.best_checkpoint} (after {run.best_step} steps)"


def printable(text: str) -> str:
    """Text of a model that is safe in a terminal: control characters are spelled out, lines are indented."""
    characters = "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text.strip())
    return characters.replace("\n", "\n  ")
