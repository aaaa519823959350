"""Stores that show a run's metrics, too: W&B, TensorBoard, trackio, MLflow, or one of the user's.

A sink reads `metrics.jsonl` in another process, so the run never waits. To add one: a `Sink`, and its name in `SINKS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import Field, StringConstraints

from groupwise.config.kinds import Kinds, KindSection

ESTIMATE = ("", "/low", "/high")  # suffixes of three numbers in a row: a value and the ends of its 95 % interval


class SinkConfig(KindSection):
    """Another place that shows the run's metrics. It does not change the run, and is not recorded in its directory."""

    wait_s: float = Field(30.0, gt=0)
    """Most seconds that the run waits at its end until the sink has taken the last lines; then the sink is stopped, and
    a warning says so."""


class Line(NamedTuple):
    """A line of the run's metrics, as numbers by name."""

    number: int
    """Its place in the file, from 0. A resumed run writes the lines after its checkpoint again, with the same
    numbers."""
    step: int  # the step it tells of; in evaluations, the number of finished steps
    time: float  # when it was written, in seconds since 1970
    values: Mapping[str, float]  # for example `step/reward`, `dev/pass_at_1`, `dev/pass_at_1/low`

    @classmethod
    def of(cls, number: int, entry: Mapping[str, Any]) -> "Line":
        """The line that holds this JSON object; what is neither a number nor a table of numbers is left out."""
        told = {key: value for key, value in entry.items() if key not in ("kind", "step", "time")}
        values = dict(_numbers(told, str(entry.get("kind", "step"))))
        return cls(number, int(entry["step"]), float(entry["time"]), values)


def _numbers(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}/{key}")
    elif isinstance(value, list) and len(value) == len(ESTIMATE) and all(isinstance(x, int | float) for x in value):
        yield from zip((name + end for end in ESTIMATE), value, strict=True)


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The run whose lines a sink gets."""

    path: Path
    id: str  # eight hex digits that survive a resume; `--restart` draws new ones
    recipe: Mapping[str, Any]  # its resolved recipe, as nested tables

    @property
    def name(self) -> str:
        return self.path.as_posix()


ConfigT = TypeVar("ConfigT", bound=SinkConfig)


class Sink(ABC, Generic[ConfigT]):
    """A store of metrics. It lives in its own process: whatever it does there, the run continues."""

    Config: ClassVar[type[SinkConfig]] = SinkConfig  # class of its settings

    @abstractmethod
    def __init__(self, config: ConfigT, run: SinkRun) -> None:
        """Open the store, or reopen it if the run is resumed."""

    @property
    def held(self) -> int | None:
        """Number of lines of the run that the store has; None: as many as `write` has returned for so far."""
        return None

    @abstractmethod
    def write(self, lines: Sequence[Line]) -> None:
        """Take the next lines, in order. Each is given once, over all resumes of the run."""

    def close(self) -> None:
        """Hand on what is still kept back; no line follows."""


SINKS = Kinds(
    "sink",
    {
        name: f"groupwise.runs.sinks.stores:{name.capitalize()}"
        for name in ("wandb", "tensorboard", "trackio", "mlflow")
    },
)

SinkName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
"""A name of the user's own; files in the run directory carry it."""
SinkSections = dict[SinkName, Annotated[SinkConfig, SINKS]]  # the `[sinks.NAME]` sections of a recipe
