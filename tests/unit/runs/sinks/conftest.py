"""A run directory without a model: its metrics are what a run would write."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from groupwise.runs.directory import RunDirectory, begin_run
from groupwise.runs.sinks import SINKS, Sinks


def entry(step: int, attempt: int) -> dict[str, Any]:
    """A step's line; what it measures is the same in every attempt, its times are not."""
    return {"kind": "step", "step": step, "reward": step / 8, "parts": {"part/accuracy/mean": 0.5}, "time": attempt}


DEV = {"kind": "dev", "step": 2, "pass_at_1": [0.5, 0.25, 0.75], "best": True, "second": None, "time": 1.0}
"""An evaluation after two steps, as it stands between the lines of steps 1 and 2."""


@dataclass(frozen=True)
class FakeRun:
    """Writes lines, and has sinks for them."""

    directory: RunDirectory
    sections: Mapping[str, Any]

    def go(self, entries: Iterable[Mapping[str, Any]], killed: bool = False) -> None:
        """Write lines with the sinks on; `killed`: their process ends with nothing said to the sinks."""
        sinks = Sinks.start(self.directory.path, {name: SINKS.read(one) for name, one in self.sections.items()})  # type: ignore[misc]
        for one in entries:
            self.directory.metrics.append(one)
            sinks.check()
        feeds = list(sinks._live.values())
        if not killed:
            sinks.finish()
        for feed in feeds if killed else ():
            feed.let_go()  # what the system does
            feed.process.wait()

    def interrupted_and_resumed(self) -> None:
        """Four steps and an evaluation, a kill, a checkpoint after two steps, and six steps at the end."""
        self.go([entry(0, 1), entry(1, 1)])
        checkpoint = self.directory.metrics.size
        self.go([DEV, entry(2, 1), entry(3, 1)], killed=True)
        self.directory.metrics.truncate(checkpoint)
        self.go([DEV, *(entry(step, 2) for step in range(2, 6))])


@pytest.fixture
def fake_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeRun]:
    """fake_run(name={"kind": ...}) -> a run with these sinks; its working directory is the test's."""
    monkeypatch.chdir(tmp_path)

    def make(**sections: Any) -> FakeRun:
        return FakeRun(begin_run(Path("runs/fake"), 'algorithm = "sft"\n[run]\nseed = 3\n'), sections)

    return make
