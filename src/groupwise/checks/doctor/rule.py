"""The class of rules, and the statistics that they share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean, median
from typing import Any

from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import SHOWN, RunFacts, StepFacts
from groupwise.runs.row import Row

WINDOW = 5  # steps that a statistic of "now" is taken over, and that a run's start is
SURE = 0.01  # p-value below which a trend is one
LIKELY = 0.05  # p-value below which a trend may be one
LR = Advice("optimizer.lr", "divide by 3")
EPOCHS = Advice("loss.epochs", "fewer passes over the same completions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: a pure function of a run's facts, and what a person should know of it."""

    name: str
    says: str
    statistic: str
    thresholds: str  # from where on it is a note, a warning, critical
    source: str
    needs: tuple[str, ...] = ()
    """Fields of a step's line that it reads; without them it cannot judge. `rollouts` and `dev` stand for themselves.
    """
    find: Callable[[RunFacts], Finding | None]
    advice: tuple[Advice, ...] = ()
    least: int = 2  # steps
    reads_all: bool = False  # True: also dev results that are no numbers

    def missing(self, run: RunFacts) -> list[str]:
        """Return what it needs and the run does not have; a scalar that was never finite says so."""
        there = {"rollouts": any(step.groups for step in run.steps), "dev": bool(run.dev)}
        lacks = [name for name in self.needs if not (there[name] if name in there else run.series(name))]
        lacks = [f"{name}: never finite" if any(type(s.line.get(name)) is float for s in run.steps) else name
                 for name in lacks]  # fmt: skip
        return [*lacks, *([f"{self.least} steps"] if len(run.steps) < self.least else [])]

    def __call__(self, run: RunFacts) -> Finding | None:
        found = None if self.missing(run) else self.find(run)
        return found and replace(found, check=self.name, advice=found.advice or self.advice)


def rule(**facts: Any) -> Callable[[Callable[[RunFacts], Finding | None]], Rule]:
    """Make a rule of a function: its name is the function's, and what it says the docstring."""
    return lambda find: Rule(name=find.__name__, says=find.__doc__ or "", find=find, **facts)


def graded(value: float, warning: float, critical: float) -> Severity | None:
    """The severity of a value that is bad where it is large."""
    if value >= critical:
        return Severity.CRITICAL
    return Severity.WARNING if value >= warning else None


def recent(values: Sequence[float], size: int = WINDOW) -> float:
    """Mean of the last values."""
    return fmean(values[-size:])


def start(values: Sequence[float], size: int = WINDOW) -> float:
    """Mean of the first values."""
    return fmean(values[:size])


def improves(run: RunFacts) -> bool:
    """Return True if dev or the pass rate in training rises, or has risen, as far as the numbers show.

    The best of a few evaluations says that dev rises; of many, one is the best by chance, and a run that has them has
    steps enough for a sure rise.
    """
    dev, correct = [result.pass_at_1 for result in run.dev], run.values("sampled_correct")
    lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
    if len(dev) >= 2 * WINDOW:
        return min(rises(lately), rises(dev[-max(WINDOW, len(dev) // 3) :])) < SURE
    return rises(lately) < LIKELY or (len(dev) > 1 and dev[-1] >= max(dev[:-1]) and dev[-1] > dev[0])


def worsens(run: RunFacts) -> bool:
    """Return True if the pass rate in training falls, or dev fell clearly below its best."""
    dev, correct = [result.pass_at_1 for result in run.dev], run.values("sampled_correct")
    lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
    return falls(lately) < LIKELY or (len(dev) > 1 and dev[-1] < max(dev) - 0.1)


def has_gained(run: RunFacts) -> bool:
    """Return True if the pass rate surely rises over the whole run, or dev is above its start.

    For what is bad from the first step on: a rise of the last steps alone comes by chance in one of twenty runs.
    """
    dev = [result.pass_at_1 for result in run.dev]
    return rises(run.values("sampled_correct")) < SURE or (len(dev) > 1 and dev[-1] - dev[0] > 0.02)


def gains(run: RunFacts) -> float:
    """Return the one-sided p-value of "the pass rate of the last 10 steps is not above that of the first 5"."""
    return 0.5 * math.erfc(_change(run) / math.sqrt(2))


def loses(run: RunFacts) -> float:
    """The same of "is not below"."""
    return 0.5 * math.erfc(-_change(run) / math.sqrt(2))


def _change(run: RunFacts) -> float:
    """Standard errors by which the pass rate is now above the start's."""
    known = [(value * step.num_completions, step.num_completions) for step in run.steps
             if (value := step.number("sampled_correct")) is not None]  # fmt: skip
    (then, before), (now, after) = (
        (sum(right for right, _ in some), sum(number for _, number in some))
        for some in (known[:WINDOW], known[-2 * WINDOW :])
    )
    if len(known) < 3 * WINDOW or not before or not after:
        return 0.0
    pooled = (then + now) / (before + after)
    error = math.sqrt(pooled * (1 - pooled) * (1 / before + 1 / after))
    return (now / after - then / before) / error if error else 0.0


def persists(run: RunFacts, bad: Callable[[StepFacts], bool]) -> int:
    """First step of the stretch that lasts to the end and in which every step is bad; the last step where none is."""
    since = run.steps[-1].step
    for step in reversed(run.steps):
        if not bad(step):
            break
        since = step.step
    return since


def shown(steps: Sequence[StepFacts], wanted: Callable[[Row], bool]) -> tuple[Place, ...]:
    """Newest completions of which something holds."""
    places = [
        Place(step.step, row.problem, row.sample) for step in reversed(steps) for row in step.completions if wanted(row)
    ]
    return tuple(places[:SHOWN])


def paid(run: RunFacts) -> tuple[Place, ...]:
    """The best paid completions of the last step."""
    step = run.steps[-1]
    ranked = sorted(
        (row for row in step.completions if row.reward is not None), key=lambda row: row.reward or 0.0, reverse=True
    )
    return tuple(Place(step.step, row.problem, row.sample) for row in ranked[:SHOWN])


def since(run: RunFacts, first: int) -> int:
    """Steps from the first one on."""
    return sum(step.step >= first for step in run.steps)


MOST = 200  # values that a trend is computed of; of longer series, means of as many blocks: pairs grow with the square


def _blocks(values: Sequence[float]) -> list[float]:
    size = -(-len(values) // MOST)
    return [fmean(values[i : i + size]) for i in range(0, len(values), size)] if size > 1 else list(values)


def slope(values: Sequence[float]) -> float:
    """Theil-Sen slope per position: the median slope of all pairs (Sen 1968). 0 for fewer than two values.

    >>> slope([0.0, 1.0, 2.0, 3.0, 100.0])
    1.0
    """
    blocks = _blocks(values)
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(blocks), 2)]
    scale = len(blocks) / len(values) if len(blocks) < len(values) else 1.0
    return scale * median(slopes) if slopes else 0.0


def rises(values: Sequence[float]) -> float:
    """One-sided p-value of "there is no rise" (Mann 1945, Kendall 1975): normal, for ties and continuity corrected.

    1 for fewer than four values: they prove nothing.

    >>> round(rises([1.0, 2.0, 3.0, 4.0]), 4)
    0.0447
    """
    values = _blocks(values)
    n = len(values)
    if n < 4:
        return 1.0
    score = sum((b > a) - (b < a) for a, b in combinations(values, 2))
    ties = [values.count(value) for value in set(values)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if variance == 0:
        return 1.0
    z = (score - (score > 0) + (score < 0)) / math.sqrt(variance)
    return 0.5 * math.erfc(z / math.sqrt(2))


def falls(values: Sequence[float]) -> float:
    """One-sided p-value of "there is no fall"; see `rises`."""
    return rises([-value for value in values])


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b of two series; 0 where one of them never changes.

    >>> rank_correlation([1, 2, 3], [10, 20, 15])
    0.3333333333333333
    """
    first, second = _blocks(first), _blocks(second)
    pairs = list(combinations(zip(first, second, strict=True), 2))
    signs = [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in pairs]
    distinct = sum(x != 0 for x, _ in signs) * sum(y != 0 for _, y in signs)
    return sum(x * y for x, y in signs) / math.sqrt(distinct) if distinct else 0.0


def outlying(values: Sequence[float], deviations: float, times: float) -> list[int]:
    """Positions of values above the median by this many median absolute deviations, and this many times it.

    >>> outlying([1.0, 1.1, 0.9, 1.0, 30.0], deviations=8, times=3)
    [4]
    """
    if not values:
        return []
    middle = median(values)
    spread = median([abs(value - middle) for value in values])
    return [i for i, value in enumerate(values) if value > middle + deviations * spread and value >= times * middle]


def sign_test(worse: int, better: int) -> float:
    """One-sided exact p-value of as many `worse` ones among those that changed, were both as likely (McNemar 1947).

    >>> sign_test(worse=5, better=0)
    0.03125
    """
    n = worse + better
    return sum(math.comb(n, k) for k in range(worse, n + 1)) / float(2**n)
