"""The run's side of its sinks: it starts a process for each, never waits for one but at its end, and warns once."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from groupwise.runs.sinks.base import SinkConfig
from groupwise.runs.sinks.state import SinkFiles

_RUNNING: dict[Path, subprocess.Popen[bytes]] = {}
"""Sinks by their state file. One that a run of this process left behind with an error ends when the run continues."""


@dataclass(slots=True)
class Sinks:
    """The sinks of one run."""

    _live: dict[str, "_Feed"] = field(default_factory=dict)

    @classmethod
    def start(cls, run: Path, sections: Mapping[str, SinkConfig]) -> Self:
        """Start a process for each; what cannot be started is warned of."""
        found = cls()
        for name, config in sections.items():
            try:
                found._live[name] = _Feed.start(SinkFiles(run, name), config)
            except OSError as error:
                _warn(name, str(error), SinkFiles(run, name))
        return found

    def check(self) -> None:
        """Warn of those that ended too early; costs a system call each."""
        for name, feed in list(self._live.items()):
            if feed.process.poll() is not None:
                del self._live[name]
                _warn(name, feed.reason(), feed.files)

    def finish(self) -> None:
        """Let each take the last lines, and wait as long as it may take; warn of those that did not."""
        began = time.monotonic()
        for feed in self._live.values():
            feed.let_go()
        for name, feed in self._live.items():
            if not feed.ended(began + feed.config.wait_s):
                _warn(name, feed.reason(), feed.files)
        self._live.clear()


@dataclass(frozen=True, slots=True)
class _Feed:
    """A sink's process."""

    config: SinkConfig
    files: SinkFiles
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, files: SinkFiles, config: SinkConfig) -> Self:
        files.begin()
        if left := _RUNNING.pop(files.state.resolve(), None):
            _close(left)
        words = [
            sys.executable,
            "-m",
            "groupwise.runs.sinks.worker",
            str(files.run),
            files.name,
            config.model_dump_json(),
        ]
        with files.log.open("ab") as log:
            # a process group of its own: Ctrl-C is the run's affair
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0)
        _RUNNING[files.state.resolve()] = process
        return cls(config, files, process)

    def let_go(self) -> None:
        """Say that no line follows."""
        _RUNNING.pop(self.files.state.resolve(), None)
        _close(self.process)

    def ended(self, deadline: float) -> bool:
        """Whether it took all lines before this time; if it still runs then, it is stopped."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return self.files.read().closed

    def reason(self) -> str:
        """Why it ended too early."""
        status = self.process.returncode
        key = f"sinks.{self.files.name}.wait_s"
        late = f"it had not taken the last lines {self.config.wait_s:g} s after the run's end ({key})"
        return self.files.read().failed or (late if status == -signal.SIGKILL else f"it ended with status {status}")


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def _warn(name: str, reason: str, files: SinkFiles) -> None:
    warnings.warn(
        f"sink {name} failed, and the run continues without it: {reason.rstrip('.')}. See {files.log}", stacklevel=2
    )
