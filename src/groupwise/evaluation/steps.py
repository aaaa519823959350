"""Evaluation of process reward models on labelled steps: `groupwise eval --steps` prints its table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from groupwise.algorithms.statistics import Estimate, mean_share
from groupwise.algorithms.step_metrics import (
    area_under_curve,
    best_threshold,
    first_errors,
    labelled_scores,
    predicted,
    step_calibration,
)
from groupwise.errors import DataError, told_as
from groupwise.models.config import ModelConfig
from groupwise.models.reward_model import check_number
from groupwise.models.steps import ScoresSteps, encode_steps, load_scorer, score_rows
from groupwise.tasks.step_rows import StepRow, labelled, read_steps

FIXED = 0.5


@dataclass(frozen=True, slots=True)
class StepEvaluation:
    """The result of `evaluate_steps`."""

    rows: int
    threshold: float
    f1: float
    """ProcessBench's (arXiv:2412.06559): harmonic mean of the next two; nan where one kind of completion is missing."""
    first_error_found: Estimate
    """Share of the completions with a mistake whose first one is named exactly."""
    correct_passed: Estimate
    auc: float
    """Chance that a right step scores above a wrong one; nan where one kind is missing."""
    calibration_error: float
    wrong_working_found: Estimate
    """Share of the completions with a right answer and a wrong step in which any mistake is named."""
    lowest_at_end: Estimate
    """Share of completions whose lowest score is the last step's; near 1, the model has become an outcome model."""

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value._asdict() if isinstance(value, Estimate) else value for name, value in values.items()}


def evaluate_steps(
    model: str | Path,
    file: str | Path,
    *,
    dev: str | Path | None = None,
    format: str = "groupwise",
    reference: str = "",
    beta: float = 0.05,
) -> StepEvaluation:
    """Score every step of a file and compare with its labels.

    Args:
        model: directory of a process reward model.
        file: labelled steps to measure on.
        dev: other labelled steps, on which the threshold is chosen; None: it is 1/2.
        format: of both files: groupwise, big_bench_mistake, mr_gsm8k, processbench, math_shepherd, prm800k, math_aps.
        reference: the model that an implicit one was trained from; empty: the model has a head.
        beta: β of an implicit one, the value of a nat above its reference.

    Raises:
        DataError: a file cannot be read, both are the same, or the model cannot read a row.
        ConfigError: the format is unknown.
        ModelError: the model cannot be loaded.
    """
    if dev is not None and Path(dev).resolve() == Path(file).resolve():
        raise DataError(f"{file}: a threshold chosen on the rows that are measured flatters; allowed is another file")
    rows = labelled(read_steps(file, format), file)  # of others nobody knows whether they hold a mistake
    dev_rows = labelled(read_steps(dev, format), dev) if dev is not None else []
    loaded = load_scorer(ModelConfig(path=str(model)), reference, beta)
    return evaluate_scorer(loaded, rows, dev_rows, dev)[0]


def evaluate_scorer(
    scorer: ScoresSteps, rows: Sequence[StepRow], dev_rows: Sequence[StepRow], dev: str | Path | None
) -> tuple[StepEvaluation, list[list[float]]]:
    """Return the figures on rows and their scores; the threshold is chosen on other rows if there are any."""
    scores, of_dev = (_scores(scorer, part) for part in (rows, dev_rows))
    with told_as(DataError, f"{dev}", ValueError):
        threshold = best_threshold(of_dev, [row.first_error for row in dev_rows]) if dev_rows else FIXED
    return judge_scores(rows, scores, threshold), scores


def _scores(scorer: ScoresSteps, rows: Sequence[StepRow]) -> list[list[float]]:
    found = score_rows(scorer, [encode_steps(scorer, row) for row in rows]) if rows else []
    for row, of_row in zip(rows, found, strict=True):
        of = f"of the row that starts with {row.prompt[:60]!r}"
        for step, score in enumerate(of_row):
            check_number(score, "the process reward model", f"step {step} {of}")
    return found


def judge_scores(rows: Sequence[StepRow], scores: Sequence[Sequence[float]], threshold: float) -> StepEvaluation:
    """Return the figures of scores, one for each step of each row; rows of which nothing is known are left out."""
    known = [any(label is not None for label in row.labels) for row in rows]
    rows, scores = list(compress(rows, known)), list(compress(scores, known))
    truth = [row.first_error for row in rows]
    named = [predicted(of_row, threshold) for of_row in scores]
    given, labels = labelled_scores(scores, [row.labels for row in rows])
    hits = list(zip(rows, truth, named, strict=True))
    return StepEvaluation(
        rows=len(rows), threshold=threshold, f1=first_errors(scores, truth, threshold).f1,
        first_error_found=mean_share([float(found == error) for _, error, found in hits if error is not None]),
        correct_passed=mean_share([float(found is None) for _, error, found in hits if error is None]),
        auc=area_under_curve(given, [label >= 0.5 for label in labels]),
        calibration_error=step_calibration(given, labels),
        wrong_working_found=mean_share(
            [float(found is not None) for row, error, found in hits if row.final_answer_correct and error is not None]
        ),
        lowest_at_end=mean_share([float(min(of_row) == of_row[-1]) for of_row in scores]),
    )  # fmt: skip
