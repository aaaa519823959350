"""Several seeds of a pipeline at one time: a process each, with its share of the processor."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rich.console import Console

from groupwise.errors import GroupwiseError
from groupwise.trainers.compare import share_of_threads


def run_at_once(commands: Mapping[str, Sequence[str]], at_once: int, console: Console) -> bool:
    """Run `groupwise` with each of these arguments, `at_once` at a time; returns False if Ctrl-C stopped them.

    Raises:
        GroupwiseError: some failed; the others were run to their end before.
    """
    lanes = _Lanes(console, share_of_threads(at_once))
    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(lanes.run, name, command) for name, command in commands.items()]
        try:
            said = dict(zip(commands, (one.result() for one in waiting), strict=True))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            lanes.interrupt()
            return False
    if failures := [f"{name}: {last.removeprefix('groupwise: ')}" for name, last in said.items() if last]:
        raise GroupwiseError("; ".join(failures))
    return True


@dataclass(slots=True)
class _Lanes:
    """The processes that run now."""

    console: Console
    environment: dict[str, str]
    _live: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, name: str, command: Sequence[str]) -> str | None:
        """Run one to its end and show what it says; returns its last line if it failed."""
        words = [sys.executable, "-m", "groupwise", *command]
        # a session of its own: Ctrl-C reaches it once, through us
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
            env=self.environment, start_new_session=True,
        ) as process:  # fmt: skip
            self._live.append(process)
            last = "no output"
            for line in process.stdout or ():
                if line.strip():
                    last = line.rstrip()
                    self.console.print(f"{name} │ {last}", highlight=False, markup=False, soft_wrap=True)
        self._live.remove(process)
        return last if process.returncode else None

    def interrupt(self) -> None:
        """Have each stop after the step in hand."""
        for process in list(self._live):
            process.send_signal(signal.SIGINT)
