"""What the doctor finds: a rule's verdict with the numbers and the completions behind it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """How bad a finding is, the mildest first."""

    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    WARNING = "warning"
    """The run wastes steps, or will fail if it goes on like this."""
    CRITICAL = "critical"
    """What is learnt from here on is not what the recipe asks for."""

    @property
    def rank(self) -> int:
        """0 for the mildest."""
        return list(Severity).index(self)


class Evidence(NamedTuple):
    """A place in the run that shows it; `groupwise replay` and the pages find it again."""

    step: int
    """0-based; where `evaluation` names one, finished steps before it."""
    problem: str | None = None
    """Id; None where a whole step is meant."""
    sample: int | None = None
    """Within the group; None where a whole group is meant."""
    evaluation: str | None = None
    """Name of the evaluation; None for a training step."""


class Advice(NamedTuple):
    """One change to try. Try one at a time."""

    key: str
    """Key of the recipe; empty where the change is none of the recipe's."""
    change: str
    """What to do with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule says of one run."""

    rule: str
    severity: Severity
    since_step: int
    """First step (0-based) of the data that shows it."""
    statistic: float
    threshold: float
    """The bound of the severity."""
    unit: str
    explanation: str
    """With the run's own numbers, in a sentence."""
    evidence: tuple[Evidence, ...] = ()
    advice: tuple[Advice, ...] = ()
    wasted: int = 0
    """Steps done since, of which little or nothing was learnt; 0 where they were not lost."""

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "evidence": [e._asdict() for e in self.evidence],
                "advice": [a._asdict() for a in self.advice]}  # fmt: skip

    @property
    def where(self) -> str:
        """The evidence in words; empty without."""
        return ", ".join(_place(one) for one in self.evidence)


def _place(evidence: Evidence) -> str:
    at = evidence.evaluation or f"step {evidence.step}"
    return " ".join(
        [at, *([evidence.problem] if evidence.problem else []),
         *([f"sample {evidence.sample}"] if evidence.sample is not None else [])]
    )  # fmt: skip


def worst(findings: Mapping[str, Finding] | list[Finding]) -> Severity | None:
    """The worst severity; None where nothing was found."""
    values = findings.values() if isinstance(findings, Mapping) else findings
    return max((one.severity for one in values), key=lambda severity: severity.rank, default=None)
