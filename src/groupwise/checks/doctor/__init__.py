"""The doctor: faults of a run, read from its directory alone; `RULES` is the one table of rules.

A rule compares a run with its start: a healthy run may lose entropy, grow longer, or solve its problems.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import Field

from groupwise.checks import Advice, Finding, Place, Severity, worst
from groupwise.checks.doctor import completions, results, rewards, updates
from groupwise.checks.doctor.facts import FIRST, LAST, DevFacts, RunFacts, StepFacts, read_dev, read_facts, read_step
from groupwise.checks.doctor.rule import Rule
from groupwise.config import Section
from groupwise.errors import ConfigError
from groupwise.runs.records import Records

RULES = {
    member.name: member
    for module in (rewards, results, completions, updates) for member in vars(module).values()
    if isinstance(member, Rule)
}  # fmt: skip


class Diagnosis(NamedTuple):
    """Findings of the rules on a run."""

    findings: tuple[Finding, ...]  # the worst first, then the earliest
    not_judged: dict[str, list[str]]  # rules that could not judge, with what the run did not record
    num_steps: int  # that have a line
    rhythm: int  # steps from one line to the next: more than 1 where another system records some steps alone

    @property
    def worst(self) -> Severity | None:
        return worst(list(self.findings))


def diagnose(run: RunFacts, ignore: Sequence[str] = ()) -> Diagnosis:
    """Apply every rule to a run, or to as much as there is of it."""
    rules = [rule for rule in RULES.values() if rule.name not in ignore]
    every, run = run, replace(run, dev=tuple(result for result in run.dev if math.isfinite(result.pass_at_1)))
    findings = [found for rule in rules if (found := rule(every if rule.reads_all else run))]
    findings.sort(key=lambda finding: (-finding.severity.rank, finding.since_step))
    missing = {rule.name: names for rule in rules if (names := rule.missing(run))}
    rhythm = median([b.step - a.step for a, b in pairwise(run.steps)] or [1])
    return Diagnosis(tuple(findings), missing, len(run.steps), round(rhythm))


def doctor(path: str | Path) -> Diagnosis:
    """The diagnosis of a run directory, finished or not.

    Raises:
        ConfigError: there is no run of reinforcement learning at this path.
        DataError: one of its files cannot be read.
    """
    return diagnose(read_facts(path))


def rule_named(name: str) -> Rule:
    """A rule. Raises ConfigError: there is none of this name; says which there are."""
    if name not in RULES:
        raise ConfigError(f"there is no rule '{name}'; there are {', '.join(sorted(RULES))}")
    return RULES[name]


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
        done = self.steps[-1].step if self.steps else -1
        lines = [line for line in self.records.metrics() if line["step"] > done]
        weights = {line.get("step"): line.get("weights") for line in self.records.ledger() if "groups" in line}
        recorded = set(self.records.steps())
        self.steps += [read_step(self.records, line, recorded, weights) for line in lines]
        self.dev += [read_dev(self.records, line) for line in self.records.metrics("dev")[len(self.dev) :]]
        self.steps[FIRST:-LAST] = [replace(step, groups=()) for step in self.steps[FIRST:-LAST]]
        facts = RunFacts(config=self.config, steps=tuple(self.steps), dev=tuple(self.dev))
        news = [
            finding
            for finding in diagnose(facts, self.ignore).findings
            if finding.severity.rank > self.known.get(finding.check, -1)
        ]
        self.known |= {finding.check: finding.severity.rank for finding in news}
        return news


def check_rules(names: Sequence[str]) -> None:
    """Rules that are left out must exist. Raises ValueError: one does not; says which there are."""
    if unknown := [name for name in names if name not in RULES]:
        raise ValueError(f"doctor.ignore names '{unknown[0]}', which is no rule; there are {', '.join(sorted(RULES))}")


__all__ = [
    "RULES", "Advice", "Diagnosis", "Finding", "Place", "Rule", "Severity", "Watch", "check_rules", "diagnose",
    "doctor", "rule_named",
]  # fmt: skip
