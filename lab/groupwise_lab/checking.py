"""The gain from checking: completions that check themselves beside those that do not, by accuracy and by length."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groupwise.algorithms.statistics import Estimate
from groupwise.evaluation.behaviour import PATTERNS, Behaviour, Patterns, span_of
from groupwise.runs.row import Row
from groupwise.types import Outcome

_RESAMPLES = 2000


class CheckingGain(NamedTuple):
    """Costs and earnings of checking."""

    share: float
    """Completions that check."""
    checked: float
    """Accuracy of those."""
    unchecked: float
    """Accuracy of the others."""
    extra_tokens: float
    """Mean tokens of those that check, less those of the others."""
    per_100_tokens: Estimate
    """Difference in accuracy for every 100 tokens more, with a 95 % bootstrap interval over problems."""


def checking_gain(rows: Sequence[Row], patterns: Patterns = PATTERNS, seed: int = 0) -> CheckingGain | None:
    """The gain of checking; None where all completions check, or none does, or checking takes no more tokens.

    The two sides are sums over all completions of a problem, so a problem that is never checked still counts on the
    other side. The interval resamples problems (Efron 1979, the percentile method).
    """
    problems = list(dict.fromkeys(row.problem for row in rows))
    table = np.zeros((len(problems), 2, 3))  # problem, does it check, (completions, correct ones, tokens)
    places = {problem: place for place, problem in enumerate(problems)}
    for row in rows:
        side = int(span_of(Behaviour.CHECKS, row, patterns) is not None)
        table[places[row.problem], side] += (1, row.outcome is Outcome.CORRECT, row.num_tokens)
    counts, right, tokens = (table.sum(0)[:, column] for column in range(3))
    if not counts.all() or (extra := float(tokens[1] / counts[1] - tokens[0] / counts[0])) <= 0:
        return None
    gains = _resampled(table, seed)
    gain = 100 * float(right[1] / counts[1] - right[0] / counts[0]) / extra
    interval = Estimate(gain, *map(float, np.quantile(gains, (0.025, 0.975))))
    return CheckingGain(
        float(counts[1] / counts.sum()), float(right[1] / counts[1]), float(right[0] / counts[0]), extra, interval
    )


def _resampled(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """The gain of each resample that has both sides."""
    draws = np.random.default_rng(seed).integers(0, len(table), (_RESAMPLES, len(table)))
    sums = np.stack([table[draw].sum(0) for draw in draws])
    sums = sums[(sums[:, :, 0] > 0).all(1)]
    accuracy, length = sums[:, :, 1] / sums[:, :, 0], sums[:, :, 2] / sums[:, :, 0]
    gains: NDArray[np.float64] = 100 * (accuracy[:, 1] - accuracy[:, 0]) / (length[:, 1] - length[:, 0])
    return gains
