"""What a rule is, and what rules share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from groupwise.checks.doctor.facts import SHOWN, CompletionFacts, RunFacts, StepFacts
from groupwise.checks.doctor.finding import Advice, Evidence, Finding, Severity
from groupwise.checks.doctor.trends import falls, rises

WINDOW = 5
"""Steps that a statistic of "now" is taken over, and that a run's start is."""
SURE = 0.01
"""p-value below which a trend is one."""
LIKELY = 0.05
"""p-value below which a trend may be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: a pure function of a run's facts, and what a person should know of it."""

    name: str
    says: str
    """The symptom, in a sentence."""
    statistic: str
    """What is computed."""
    thresholds: str
    """From where on it is a note, a warning, critical."""
    source: str
    needs: tuple[str, ...]
    """Fields of a step's line that it reads; without them it cannot judge. `rollouts` and `dev` stand for themselves.
    """
    find: Callable[[RunFacts], Finding | None]
    advice: tuple[Advice, ...]

    def missing(self, run: RunFacts) -> list[str]:
        """What the run did not record of what the rule needs."""
        return [name for name in self.needs if not _there(run, name)]

    def __call__(self, run: RunFacts) -> Finding | None:
        """The finding, if there is one. Fewer steps than a window prove nothing."""
        if len(run.steps) < 2 or self.missing(run):
            return None
        return self.find(run)


def _there(run: RunFacts, name: str) -> bool:
    if name == "rollouts":
        return any(step.groups for step in run.steps)
    if name == "dev":
        return bool(run.dev)
    return bool(run.series(name))


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
    """Whether dev or the pass rate in training rises, or has risen, as far as one can tell.

    The best of a few evaluations says that dev rises; of many, one is the best by chance, and a run that has them has
    steps enough for a sure rise.
    """
    dev, correct = [one.pass_at_1 for one in run.dev], run.values("sampled_correct")
    lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
    if len(dev) >= 2 * WINDOW:
        return min(rises(lately), rises(dev[-max(WINDOW, len(dev) // 3) :])) < SURE
    return rises(lately) < LIKELY or (len(dev) > 1 and dev[-1] >= max(dev[:-1]) and dev[-1] > dev[0])


def worsens(run: RunFacts) -> bool:
    """Whether the pass rate in training falls, or dev fell clearly below its best."""
    dev, correct = [one.pass_at_1 for one in run.dev], run.values("sampled_correct")
    lately = correct[-max(2 * WINDOW, len(correct) // 3) :]
    return falls(lately) < LIKELY or (len(dev) > 1 and dev[-1] < max(dev) - 0.1)


def has_gained(run: RunFacts) -> bool:
    """Whether the run as a whole has led somewhere: the pass rate surely rises over it, or dev is above its start.

    For what is bad from the first step on: a rise of the last steps alone comes by chance in one of twenty runs.
    """
    dev = [one.pass_at_1 for one in run.dev]
    return rises(run.values("sampled_correct")) < SURE or (len(dev) > 1 and dev[-1] - dev[0] > 0.02)


def gains(run: RunFacts) -> float:
    """One-sided p-value of "the pass rate of the last 10 steps is not above that of the first 5" (two shares, normal).

    0.5 where there are fewer steps than that.
    """
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


def shown(steps: Sequence[StepFacts], wanted: Callable[[CompletionFacts], bool]) -> tuple[Evidence, ...]:
    """Newest completions of which something holds."""
    found = [
        Evidence(step.step, one.problem, one.sample)
        for step in reversed(steps)
        for one in step.completions
        if wanted(one)
    ]
    return tuple(found[:SHOWN])


def paid(run: RunFacts) -> tuple[Evidence, ...]:
    """The best paid completions of the last step."""
    step = run.steps[-1]
    ranked = sorted(
        (one for one in step.completions if one.reward is not None), key=lambda one: one.reward or 0.0, reverse=True
    )
    return tuple(Evidence(step.step, one.problem, one.sample) for one in ranked[:SHOWN])


def since(run: RunFacts, first: int) -> int:
    """Steps from the first one on."""
    return sum(step.step >= first for step in run.steps)
