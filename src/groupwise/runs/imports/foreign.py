"""A run that another system recorded: what its importer returns, and a run directory is made of."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from groupwise.errors import ConfigError
from groupwise.types import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One completion as another system recorded it. What it did not is None."""

    prompt: str
    text: str
    reward: float | None
    parts: Mapping[str, float]  # parts of the reward by name; their sum is the reward
    measures: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    reference: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A run of another system. Steps have the numbers that it gave them."""

    scalars: Mapping[int, Mapping[str, float]]
    """By step, under the names of our step lines; a name that it does not have was not recorded."""
    answers: Mapping[int, list[Answer]]
    dev: Mapping[int, list[Answer]] = field(default_factory=dict)
    """Completions of evaluations by the step before which they stand."""


class Correct(NamedTuple):
    """Criterion of a correct answer: a part or a measure above a bound."""

    name: str
    above: float

    @classmethod
    def of(cls, text: str) -> "Correct":
        """Read `NAME` (above 0.5) or `NAME>BOUND`.

        >>> Correct.of("accuracy_reward"), Correct.of("score>0")
        (Correct(name='accuracy_reward', above=0.5), Correct(name='score', above=0.0))

        Raises:
            ConfigError: the bound is no number.
        """
        name, _, bound = text.partition(">")
        try:
            return cls(name.strip(), float(bound) if bound else 0.5)
        except ValueError:
            raise ConfigError(f"--correct {text!r}: {bound!r} is no number; allowed is NAME or NAME>BOUND") from None

    def judge(self, answer: Answer) -> Outcome:
        value = {"reward": answer.reward, **answer.measures, **answer.parts}.get(self.name)
        if value is None:
            return Outcome.NONE
        return Outcome.CORRECT if value > self.above else Outcome.WRONG

    def check(self, answers: Iterable[Answer]) -> None:
        """Refuse a name that no completion has. Raises ConfigError: says which there are."""
        names = sorted({name for answer in answers for name in ("reward", *answer.parts, *answer.measures)})
        if names and self.name not in names:
            raise ConfigError(f"no completion has a number {self.name!r}; there are {', '.join(names)}")


def finite(value: Any) -> float | None:
    """Return a finite number, or a truth value, as float; None for everything else, NaN included."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers under our names; where several of theirs mean one of ours, the first there is."""
    numbers: dict[str, float] = {}
    for theirs, ours in names.items():
        if ours not in numbers and (value := finite(values.get(theirs))) is not None:
            numbers[ours] = value
    return numbers


def as_text(value: Any) -> str:
    """Return a field as text: conversations as `role: content`, everything else as Python writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "content" in item for item in value):
        return "\n".join(f"{item.get('role', '')}: {item['content']}" for item in value)
    return "" if value is None else str(value)
