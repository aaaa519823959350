"""What the run directory keeps of a sink: `sinks/NAME.json`, beside it what the sink printed, and a lock."""

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.runs.atomic import write_file


@dataclass(frozen=True, slots=True)
class State:
    """How far a sink is."""

    id: str
    """Of the run, in the store."""
    lines: int = 0
    """Lines that it took."""
    closed: bool = False
    """Whether it took them all and was closed."""
    failed: str = ""
    """Why it ended too early, in a sentence."""


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
        """What the sink and its libraries print."""
        return self.state.with_suffix(".log")

    def read(self) -> State:
        """The state as it is."""
        facts: dict[str, Any] = json.loads(self.state.read_text())
        return State(**facts)

    def begin(self) -> State:
        """The state before the run continues; a new sink gets an id."""
        self.state.parent.mkdir(exist_ok=True)
        before = self.read() if self.state.exists() else State(uuid.uuid4().hex[:8])
        now = State(before.id, before.lines)
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
