"""Checks of a recipe (`preflight`), a run (`doctor`) and a verifier (`audit`), and what they find: a `Finding`."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from rich.text import Text


class Severity(StrEnum):
    """Weight of a finding, the mildest first."""

    NOTE = "note"  # worth knowing; nothing is wrong
    WARNING = "warning"  # the run wastes steps or time, or its result says less than it seems to
    CRITICAL = "critical"  # the run would fail, or what it learns is not what the recipe asks for

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


STYLES = {Severity.NOTE: "cyan", Severity.WARNING: "yellow", Severity.CRITICAL: "bold red"}


class Place(NamedTuple):
    """A place in a run; `groupwise replay` and the pages find it again."""

    step: int  # 0-based; where `evaluation` names one, finished steps before it
    problem: str | None = None  # id; None where a whole step is meant
    sample: int | None = None  # within the group; None where a whole group is meant
    evaluation: str | None = None  # name of the evaluation; None for a training step

    def words(self) -> list[str]:
        sample = "" if self.sample is None else f"sample {self.sample}"
        return [*filter(None, (self.evaluation or f"step {self.step}", self.problem, sample))]

    def __str__(self) -> str:
        return " ".join(self.words())


class Advice(NamedTuple):
    """One change to try. Try one at a time."""

    key: str
    change: str

    def __str__(self) -> str:
        return f"{self.key}: {self.change}" if self.key else self.change


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault that a check found, or a fact worth knowing."""

    severity: Severity
    evidence: str
    check: str = ""  # which it is of; whoever runs the check says so
    means: str = ""
    advice: tuple[Advice, ...] = ()
    places: tuple[Place | str, ...] = ()  # places in a run, or problems, texts and files, that show it
    is_error: bool = False  # True where the evidence is an error with which the run itself would end
    since_step: int = 0  # first step (0-based) of the data that shows it; of a run
    statistic: float | None = None
    threshold: float | None = None
    unit: str = ""
    wasted: int = 0  # steps done since, of which little or nothing was learnt; 0 where they were not lost

    def facts(self) -> dict[str, Any]:
        places = [place if isinstance(place, str) else place._asdict() for place in self.places]
        return {**asdict(self), "places": places, "advice": [item._asdict() for item in self.advice]}

    def text(self, says: str = "") -> Text:
        """Return a few lines for the terminal: text, never markup, whatever a model or a file wrote."""
        head, *lines = [says, f"{self.evidence}."] if says else [self.evidence]
        text = Text.assemble(
            (f"{self.severity}  ", STYLES[self.severity]), (visible(head), "bold"), (f"  {self.check}", "dim")
        )
        for line in (*lines, *([self.means] if self.means else [])):
            text.append(f"\n  {visible(line)}")
        if self.statistic is not None and self.threshold is not None:
            wasted = f"; about {self.wasted} steps wasted" if self.wasted else ""
            bound = f"{self.statistic:.3g} {self.unit}; bound {self.threshold:g}; since step {self.since_step}{wasted}"
            text.append(f"\n  {bound}", "dim")
        if self.places:
            text.append(f"\n  see  {visible(', '.join(map(str, self.places)))}", "dim")
        for advice in self.advice:
            text.append(f"\n  try  {advice}")
        return text


def visible(text: str) -> str:
    """Return a text in one line, its unprintable characters as their numbers."""
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else f"\\u{ord(c):04x}" for c in text)


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the worst severity; None where nothing was found."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)
