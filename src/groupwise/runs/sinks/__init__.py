"""Stores that show a run's metrics, too: W&B, TensorBoard, trackio, MLflow, or one of the user's.

A sink reads `metrics.jsonl` in another process, so the run never waits. To add one: a `Sink`, and its name in `SINKS`.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import Field, StringConstraints

from groupwise.config.kinds import Kinds, KindSection
from groupwise.runs.atomic import write_file

ESTIMATE = ("", "/low", "/high")  # suffixes of three numbers in a row: a value and the ends of its 95 % interval


class SinkConfig(KindSection):
    """Another place that shows the run's metrics. It does not change the run, and is not recorded in its directory."""

    wait_s: float = Field(30.0, gt=0)
    """Most seconds that the run waits at its end until the sink has taken the last lines; then the sink is stopped, and
    a warning says so."""


class Line(NamedTuple):
    """A line of the run's metrics, as numbers by name."""

    number: int
    """Its place among all lines that the sink is given over all resumes of the run, from 0."""
    kind: str  # `step`, or what is measured, for example `dev`
    step: int  # the step it tells of; in evaluations, the number of finished steps
    time: float  # when it was written, in seconds since 1970
    values: Mapping[str, float]  # for example `step/reward`, `dev/pass_at_1`, `dev/pass_at_1/low`

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> "Line":
        """The line that holds this JSON object; what is neither a number nor a table of numbers is left out."""
        told = {key: value for key, value in entry.items() if key not in ("kind", "step", "time")}
        kind = str(entry.get("kind", "step"))
        return cls(0, kind, int(entry["step"]), float(entry["time"]), dict(_numbers(told, kind)))


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


@dataclass(frozen=True, slots=True)
class State:
    """Progress of a sink."""

    id: str
    lines: int = 0  # lines that it took
    taken: Mapping[str, int] = field(default_factory=dict)  # by kind, the step of the newest of them
    closed: bool = False  # True if it took them all and was closed
    failed: str = ""  # reason for ending too early, in a sentence


@dataclass(frozen=True, slots=True)
class SinkFiles:
    """The files of one sink of a run."""

    run: Path
    name: str

    @property
    def state(self) -> Path:
        return self.run / "sinks" / f"{self.name}.json"

    @property
    def log(self) -> Path:
        return self.state.with_suffix(".log")

    def read(self) -> State:
        facts: dict[str, Any] = json.loads(self.state.read_text())
        return State(**facts)

    def begin(self) -> State:
        self.state.parent.mkdir(exist_ok=True)
        before = self.read() if self.state.exists() else State(uuid.uuid4().hex[:8])
        now = State(before.id, before.lines, before.taken)
        write_file(self.state, json.dumps(asdict(now)).encode())
        return now

    def write(self, state: State) -> None:
        """Keep a state, unless the run was restarted meanwhile: then this one belongs to the run that was deleted."""
        if self.read().id == state.id:
            write_file(self.state, json.dumps(asdict(state)).encode())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from feeding this sink: that of a killed run may still hand on its last lines."""
        with self.state.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


_RUNNING: dict[Path, subprocess.Popen[bytes]] = {}
"""Sinks by their state file. One that a run of this process left behind with an error ends when the run continues."""


@dataclass(slots=True)
class Sinks:
    """The sinks of one run."""

    _live: dict[str, "_Feed"] = field(default_factory=dict)

    @classmethod
    def start(cls, run: Path, sections: Mapping[str, SinkConfig]) -> Self:
        """Start a process for each; what cannot be started is warned of."""
        sinks = cls()
        for name, config in sections.items():
            try:
                sinks._live[name] = _Feed.start(SinkFiles(run, name), config)
            except OSError as error:
                _warn(SinkFiles(run, name), str(error))
        return sinks

    def check(self) -> None:
        """Warn of those that ended too early; costs a system call each."""
        for name, feed in list(self._live.items()):
            if feed.process.poll() is not None:
                del self._live[name]
                _warn(feed.files, feed.reason())

    def finish(self) -> None:
        """Let each take the last lines, and wait as long as it may take; warn of those that did not."""
        began = time.monotonic()
        for feed in self._live.values():
            feed.let_go()
        for feed in self._live.values():
            try:
                feed.process.wait(max(0.0, began + feed.config.wait_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(feed.process.pid, signal.SIGKILL)
                feed.process.wait()
            if not feed.files.read().closed:
                _warn(feed.files, feed.reason())
        self._live.clear()


@dataclass(frozen=True, slots=True)
class _Feed:
    config: SinkConfig
    files: SinkFiles
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, files: SinkFiles, config: SinkConfig) -> Self:
        files.begin()
        if left := _RUNNING.pop(files.state.resolve(), None):
            _close(left)
        words = [
            sys.executable, "-m", "groupwise.runs.sinks.worker", str(files.run), files.name, config.model_dump_json(),
        ]  # fmt: skip
        with files.log.open("ab") as log:
            # a process group of its own: Ctrl-C is the run's affair
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
        _RUNNING[files.state.resolve()] = process
        return cls(config, files, process)

    def let_go(self) -> None:
        _RUNNING.pop(self.files.state.resolve(), None)
        _close(self.process)

    def reason(self) -> str:
        status = self.process.returncode
        key = f"sinks.{self.files.name}.wait_s"
        late = f"it had not taken the last lines {self.config.wait_s:g} s after the run's end ({key})"
        return self.files.read().failed or (late if status == -signal.SIGKILL else f"it ended with status {status}")


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _warn(files: SinkFiles, reason: str) -> None:
    said = f"sink {files.name} failed, and the run continues without it: {reason.rstrip('.')}. See {files.log}"
    warnings.warn(said, stacklevel=2)
