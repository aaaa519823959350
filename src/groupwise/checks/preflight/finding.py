"""What a preflight says: findings with their evidence, figures, and one verdict."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from groupwise.checks.doctor.finding import Advice

if TYPE_CHECKING:
    from groupwise.checks.preflight.bench import Bench


class Level(StrEnum):
    """How much a finding weighs, the lightest first."""

    NOTE = "note"
    """Worth knowing; the run will do what the recipe says."""
    WARNING = "warning"
    """The run will waste time, or its result will say less than it seems to."""
    NO_GO = "no-go"
    """The run would fail, or teach something else than the recipe means."""

    @property
    def rank(self) -> int:
        """0 for the lightest."""
        return list(Level).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check says of a recipe."""

    check: str
    level: Level
    evidence: str
    """What was seen, with its numbers."""
    means: str
    """What will come of it."""
    change: tuple[Advice, ...] = ()
    """What to change, one at a time."""
    places: tuple[str, ...] = ()
    """Problems, texts or files that show it."""
    is_error: bool = False
    """Whether the evidence is an error with which the run itself would end."""

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "change": [one._asdict() for one in self.change]}


class Checked(NamedTuple):
    """What a check found."""

    figures: Mapping[str, Any]
    """Numbers and texts by name, as JSON; shown whether or not anything is wrong."""
    findings: tuple[Finding, ...] = ()


Cost = Literal["free", "verifier", "model", "step"]
"""What a check needs: the recipe and its problems; the verifier; the model and a sample; steps on a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check."""

    name: str
    says: str
    """What it looks at, in a sentence."""
    cost: Cost
    run: Callable[["Bench"], Checked]
    source: str = ""
    """Where its bounds are from."""


Verdict = Literal["GO", "GO WITH WARNINGS", "NO-GO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The outcome of all checks of a recipe."""

    findings: tuple[Finding, ...]
    """The heaviest first."""
    figures: Mapping[str, Mapping[str, Any]]
    """By check."""
    not_done: Mapping[str, str] = field(default_factory=dict)
    """Checks that could not be done, and why."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each check took."""

    @property
    def verdict(self) -> Verdict:
        """What the heaviest finding decides."""
        levels = {finding.level for finding in self.findings}
        if Level.NO_GO in levels:
            return "NO-GO"
        return "GO WITH WARNINGS" if Level.WARNING in levels else "GO"

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "verdict": self.verdict, "findings": [one.facts() for one in self.findings], "figures": self.figures,
            "not_done": self.not_done, "seconds": {name: round(s, 3) for name, s in self.seconds.items()},
        }  # fmt: skip
