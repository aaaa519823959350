"""Scores of steps: joined to one of the completion, and measured by the mistakes that they find."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

Scores = Sequence[float]  # For each step of one completion, the chance that it is right


class FirstErrors(NamedTuple):
    """Share of first mistakes found; nan where there is nothing to find."""

    erroneous: float  # Share of the completions with a mistake whose first one was named exactly
    correct: float  # Share of those without in which none was named

    @property
    def f1(self) -> float:
        """Harmonic mean of both: ProcessBench (Zheng et al. 2024, arXiv:2412.06559, §3)."""
        total = self.erroneous + self.correct
        return 2 * self.erroneous * self.correct / total if total else total


def predicted(scores: Scores, threshold: float) -> int | None:
    """Return the index of the first step whose score is below the threshold; None without one.

    >>> predicted([0.9, 0.4, 0.1], threshold=0.5)
    1
    """
    return next((index for index, score in enumerate(scores) if score < threshold), None)


def first_errors(scores: Sequence[Scores], truth: Sequence[int | None], threshold: float) -> FirstErrors:
    """Measure how often the first mistake is named.

    >>> first_errors([[0.9, 0.2], [0.9, 0.8]], [1, None], threshold=0.5).f1
    1.0
    """
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for of_steps, error in zip(scores, truth, strict=True):
        hits[error is not None].append(predicted(of_steps, threshold) == error)
    return FirstErrors(*(sum(of) / len(of) if of else math.nan for of in (hits[True], hits[False])))


def best_threshold(scores: Sequence[Scores], truth: Sequence[int | None]) -> float:
    """Return the threshold with the highest F1, the middle of its widest range; to be chosen on other rows.

    A completion with its first mistake at e is right for thresholds above score e up to the least score before it, one
    without a mistake up to its least score; so only scores can be bounds, and all of them are tried.

    >>> best_threshold([[0.9, 0.2], [0.9, 0.8]], [1, None])
    0.5

    Raises:
        ValueError: only completions with a mistake, or only ones without.
    """
    if {error is None for error in truth} != {True, False}:
        raise ValueError("a threshold is chosen on completions with a mistake and others without; one kind is missing")
    bounds = np.unique([score for of_steps in scores for score in of_steps])
    candidates = np.concatenate([bounds, [math.nextafter(bounds[-1], math.inf)]])
    found, missed = np.zeros(len(candidates) + 1), np.zeros(len(candidates) + 1)
    for of_steps, error in zip(scores, truth, strict=True):
        low = -math.inf if error is None else of_steps[error]
        high = min(of_steps if error is None else of_steps[:error], default=math.inf)
        if low < high:  # right for thresholds in (low, high]
            counts = missed if error is None else found
            counts[np.searchsorted(candidates, low, side="right")] += 1
            counts[np.searchsorted(candidates, high, side="right")] -= 1
    wrong = sum(error is not None for error in truth)
    erroneous, correct = found.cumsum()[:-1] / wrong, missed.cumsum()[:-1] / (len(truth) - wrong)
    f1 = 2 * erroneous * correct / np.maximum(erroneous + correct, 1e-300)
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    widths = candidates[best] - np.where(best > 0, candidates[best - 1], candidates[best])
    at = best[int(np.argmax(widths))]
    return float(candidates[at] if at == 0 else (candidates[at - 1] + candidates[at]) / 2)


def labelled_scores(scores: Sequence[Scores], labels: Sequence[Sequence[float | None]]) -> tuple[list[float], ...]:
    """Return the scores of all steps that have a label, and the labels."""
    rows = zip(scores, labels, strict=True)
    pairs = [(score, label) for row in rows for score, label in zip(*row, strict=True) if label is not None]
    return [score for score, _ in pairs], [label for _, label in pairs]


def area_under_curve(scores: Scores, right: Sequence[bool]) -> float:
    """Return the chance that a right step scores above a wrong one, equal scores counting half; nan without both.

    >>> area_under_curve([0.9, 0.5, 0.5, 0.1], [True, True, False, False])
    0.875
    """
    values, labels = np.asarray(scores, float), np.asarray(right, bool)
    good, bad = np.sort(values[labels]), np.sort(values[~labels])
    if not len(good) or not len(bad):
        return math.nan
    below, upto = np.searchsorted(bad, good, "left"), np.searchsorted(bad, good, "right")
    return float((below + upto).sum() / (2 * len(good) * len(bad)))


def step_calibration(scores: Scores, labels: Sequence[float], bins: int = 10) -> float:
    """Return the expected calibration error: |mean label - mean score| in bins of equal width, weighted by their steps.

    >>> round(step_calibration([0.9, 0.9, 0.1], [1, 0, 0]), 4)
    0.3
    """
    values, truth = np.asarray(scores, float), np.asarray(labels, float)
    at = np.minimum((values * bins).astype(int), bins - 1)
    gaps = [abs(truth[at == b].sum() - values[at == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(values)) if len(values) else math.nan


AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda scores: math.fsum(scores) / len(scores),
}
"""`last` suits a model of values, which has learnt labels of rollouts (Snell et al. 2024, arXiv:2408.03314, §5.1);
`min` (Math-Shepherd, arXiv:2312.08935, §3.4) and `product` (Lightman et al. 2023, arXiv:2305.20050, §2.6) one of
correctness. `mean` is there to compare: steps that do nothing raise it."""


def aggregated(scores: Sequence[float], how: str) -> float:
    """Return the score of a completion from those of its steps; 0, the lowest, without steps.

    >>> [aggregated([0.5, 1.0, 0.75], how) for how in AGGREGATES]
    [0.75, 0.5, 0.375, 0.75]

    Args:
        scores: of each step the chance that it is right, in [0, 1].
        how: `last`, `min`, `product` or `mean`.

    Raises:
        ValueError: a score is no chance, NaN for example, or `how` is unknown.
    """
    if how not in AGGREGATES:
        raise ValueError(f"the scores of steps are joined by {how!r}: allowed are {', '.join(AGGREGATES)}")
    if bad := [index for index, score in enumerate(scores) if not 0 <= score <= 1]:
        raise ValueError(f"the score of step {bad[0]} is {scores[bad[0]]}: a number from 0 to 1 is allowed")
    return float(AGGREGATES[how](scores)) if scores else 0.0
