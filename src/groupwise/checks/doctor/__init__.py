"""The doctor: what is wrong with a run, read from its directory alone.

`RULES` is the one table of rules. A rule compares a run with its own start, and asks whether what it sees did harm: a
healthy run may lose entropy, grow longer, or solve its problems.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from groupwise.checks.doctor import completions, held_out, record, rewards, updates
from groupwise.checks.doctor.facts import RunFacts, read_facts
from groupwise.checks.doctor.finding import Advice, Evidence, Finding, Severity, worst
from groupwise.checks.doctor.rule import Rule
from groupwise.errors import ConfigError

RULES: dict[str, Rule] = {
    rule.name: rule for module in (rewards, held_out, completions, updates, record) for rule in module.RULES
}
"""All rules by name."""


class Diagnosis(NamedTuple):
    """What the rules say of a run."""

    findings: tuple[Finding, ...]
    """The worst first, then the earliest."""
    not_judged: dict[str, list[str]]
    """Rules that could not judge, with what the run did not record."""
    num_steps: int
    """Steps that were read."""

    @property
    def worst(self) -> Severity | None:
        """None where nothing was found."""
        return worst(list(self.findings))


def diagnose(run: RunFacts, ignore: Sequence[str] = ()) -> Diagnosis:
    """Apply every rule to a run, or to as much as there is of it."""
    rules = [rule for rule in RULES.values() if rule.name not in ignore]
    found = [replace(one, advice=one.advice or rule.advice) for rule in rules if (one := rule(run))]
    found.sort(key=lambda one: (-one.severity.rank, one.since_step))
    missing = {rule.name: names for rule in rules if (names := rule.missing(run))}
    return Diagnosis(tuple(found), missing, len(run.steps))


def doctor(path: str | Path) -> Diagnosis:
    """The diagnosis of a run directory, finished or not.

    Raises:
        ConfigError: there is no run of reinforcement learning at this path.
        DataError: one of its files cannot be read.
    """
    return diagnose(read_facts(path))


def rule_named(name: str) -> Rule:
    """A rule.

    Raises:
        ConfigError: there is none of this name; says which there are.
    """
    if name not in RULES:
        raise ConfigError(f"there is no rule '{name}'; there are {', '.join(sorted(RULES))}")
    return RULES[name]


__all__ = [
    "RULES",
    "Advice",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Rule",
    "Severity",
    "diagnose",
    "doctor",
    "rule_named",
]
