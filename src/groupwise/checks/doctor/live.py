"""The doctor beside a run that goes on: the same rules after every step, each finding told once, and again if worse."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from groupwise.checks.doctor import RULES, diagnose
from groupwise.checks.doctor.facts import FIRST, LAST, DevFacts, RunFacts, StepFacts, read_dev, read_step
from groupwise.checks.doctor.finding import Finding
from groupwise.config import Section
from groupwise.runs.records import Records


class DoctorConfig(Section):
    """The doctor during the run. It reads what the run records, and changes nothing of what it learns."""

    stop_at_critical: bool = False
    """End the run, with a checkpoint, at a critical finding; the same command goes on from there."""
    ignore: list[str] = Field(default_factory=list)
    """Rules that are left out; `groupwise doctor --explain RULE` says what a rule is."""


class Watch:
    """Rules over a growing run."""

    def __init__(self, run: Path, ignore: Sequence[str] = ()) -> None:
        self.records = Records.open(run)
        self.config = self.records.config
        self.ignore = ignore
        self.steps: list[StepFacts] = []
        self.dev: list[DevFacts] = []
        self.known: dict[str, int] = {}
        if self.records.metrics():
            self.look()  # what an interrupted run was told before is not told again

    def look(self) -> list[Finding]:
        """Findings that are new, or worse than before, in what was recorded since the last look."""
        self._read()
        facts = RunFacts(config=self.config, steps=tuple(self.steps), dev=tuple(self.dev))
        news = [
            one for one in diagnose(facts, self.ignore).findings if one.severity.rank > self.known.get(one.rule, -1)
        ]
        self.known |= {one.rule: one.severity.rank for one in news}
        return news

    def _read(self) -> None:
        done = self.steps[-1].step if self.steps else -1
        lines = [line for line in self.records.metrics() if line["step"] > done]
        weights = {line.get("step"): line.get("weights") for line in self.records.ledger() if "groups" in line}
        recorded = set(self.records.steps())
        self.steps += [read_step(self.records, line, recorded, weights) for line in lines]
        self.dev += [read_dev(self.records, line) for line in self.records.metrics("dev")[len(self.dev) :]]
        past = self.steps[FIRST:-LAST]
        self.steps[FIRST:-LAST] = [StepFacts(one.step, one.line, (), one.weights) for one in past]


def check_rules(names: Sequence[str]) -> None:
    """Rules that are left out must exist.

    Raises:
        ValueError: one does not; says which there are.
    """
    if unknown := [name for name in names if name not in RULES]:
        raise ValueError(f"doctor.ignore names '{unknown[0]}', which is no rule; there are {', '.join(sorted(RULES))}")
