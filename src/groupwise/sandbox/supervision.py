"""One program, or a tester and a solver, in fork servers: their pipes, their deadline, their output, their end."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from groupwise.sandbox.base import Pair, Program, RunResult, SandboxConfig, Status
from groupwise.sandbox.fork_server import ForkServer, Report, encode
from groupwise.sandbox.streams import Outputs, memory_file, pipe, watch

_GRACE_S = 0.5
"""Seconds that a solver may take to end after its tester."""


class Outcome(NamedTuple):
    """A result, and whether the server that ran the program may run another."""

    result: RunResult
    is_reusable: bool


class _Run:
    """A program in flight."""

    def __init__(self, server: ForkServer, program: Program, config: SandboxConfig) -> None:
        self._server, self._program, self._config = server, program, config
        self.outputs = Outputs(config.output_kb)
        self.wall_s = program.wall_s or config.wall_s
        self.start = time.monotonic()
        self.end: float | None = None  # None until the server has said how it ended
        self._report: Report | None = None

    def begin(self, ours: ExitStack, stdin: int | None = None, stdout: int | None = None) -> None:
        """Hand the program to its server, connected to these descriptors or, by default, to its input and to us."""
        with ExitStack() as theirs:
            request = theirs.enter_context(memory_file(encode(self._program, self._config)))
            if stdin is None:
                stdin = theirs.enter_context(memory_file(self._program.stdin))
            if stdout is None:
                stdout = self.outputs.open_stdout(ours, theirs)
            self._server.begin(request, stdin, stdout, self.outputs.open_stderr(ours, theirs))

    @property
    def readers(self) -> Mapping[int, Callable[[int], bool]]:
        """For `watch`: the outputs and the server's report."""
        return {**self.outputs.readers, self._server.fileno(): self._read_report}

    def _read_report(self, _: int) -> bool:
        self._report, self.end = self._server.report(), time.monotonic()
        return False

    def outcome(self) -> Outcome:
        """What became of it, once nobody watches it any more."""
        status, exit_code, evidence = self._describe_end()
        seconds = (self.end or time.monotonic()) - self.start
        result = RunResult(status, exit_code, self.outputs.stdout, self.outputs.stderr, seconds, evidence)
        is_reusable = self._report is not None and self._report.is_clean and not self.outputs.is_flooded
        return Outcome(result, is_reusable)

    def _describe_end(self) -> tuple[Status, int | None, str]:
        if self.outputs.is_flooded:
            return Status.FLOODED, None, f"it wrote more than {self._config.output_kb} KiB"
        if self.end is None:
            return Status.TIMEOUT, None, f"it did not end within {self.wall_s:g} s"
        if self._report is None:
            return Status.FAILED, None, "the sandbox ended before it said how the program did"
        return read_exit_code(os.waitstatus_to_exitcode(self._report.status))


def read_exit_code(code: int) -> tuple[Status, int | None, str]:
    """Status, exit code and evidence of a process that ended; a negative code is a signal's number."""
    if code >= 0:
        return Status.EXITED, code, f"exit status {code}" if code else ""
    known: dict[int, str] = {
        signal.SIGXCPU: "its processor time was used up",
        signal.SIGKILL: "killed by the kernel at a limit",
    }
    return Status.SIGNALLED, code, f"signal {-code}: {known.get(-code) or signal.strsignal(-code)}"


def run_single(server: ForkServer, program: Program, config: SandboxConfig) -> list[Outcome]:
    """Run one program alone."""
    run = _Run(server, program, config)
    with ExitStack() as ours:
        run.begin(ours)
        watch(run.readers, lambda: run.start + run.wall_s, lambda: run.outputs.is_flooded)
    return [run.outcome()]


def run_connected(servers: Sequence[ForkServer], pair: Pair, config: SandboxConfig) -> list[Outcome]:
    """Run a tester and a solver at the same time, each one's output the other's input."""
    tester, solver = (_Run(server, program, config) for server, program in zip(servers, pair, strict=True))
    with ExitStack() as ours:
        with pipe() as (from_tester, to_solver), pipe() as (from_solver, to_tester):
            tester.begin(ours, from_solver, to_solver)
            solver.begin(ours, from_tester, to_tester)
        latest = tester.start + max(tester.wall_s, solver.wall_s)
        watch(
            {**tester.readers, **solver.readers},
            lambda: latest if tester.end is None else min(latest, tester.end + _GRACE_S),
            lambda: tester.outputs.is_flooded or solver.outputs.is_flooded,
        )
    return [tester.outcome(), solver.outcome()]
