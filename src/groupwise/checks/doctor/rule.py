"""The class of rules, and what they share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from groupwise.checks import Advice, Finding, Place, Severity
from groupwise.checks.doctor.facts import SHOWN, RunFacts, StepFacts
from groupwise.runs.row import Row

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


class Grade(NamedTuple):
    """The severity of a statistic, and the bound that it reached."""

    severity: Severity
    statistic: float
    threshold: float


def graded(value: float, warning: float, critical: float) -> Grade | None:
    """The grade of a value that is bad where it is large; None below the bound of a warning."""
    if value >= critical:
        return Grade(Severity.CRITICAL, value, critical)
    return Grade(Severity.WARNING, value, warning) if value >= warning else None


Wanted = Callable[[Row], bool]


def shown(steps: Sequence[StepFacts], wanted: Wanted) -> tuple[Place, ...]:
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
