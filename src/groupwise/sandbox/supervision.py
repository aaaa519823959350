"""One program, or a tester and a solver, in fork servers: their pipes, their deadline, their output, their end."""

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from groupwise.sandbox.base import Pair, Program, RunResult, SandboxConfig, Status
from groupwise.sandbox.fork_server import ForkServer, Report, encode

_CHUNK = 1 << 16


class Outputs:
    """Standard output and error of one program, read as they come."""

    def __init__(self, max_kb: int) -> None:
        self._max_bytes = max_kb << 10
        self._stdout, self._stderr = bytearray(), bytearray()
        self._buffers: dict[int, bytearray] = {}

    def open_stdout(self, ours: ExitStack, theirs: ExitStack) -> int:
        """The write end of a new pipe for standard output; both ends are closed with their stacks."""
        return self._open(self._stdout, ours, theirs)

    def open_stderr(self, ours: ExitStack, theirs: ExitStack) -> int:
        """The same for standard error."""
        return self._open(self._stderr, ours, theirs)

    def _open(self, buffer: bytearray, ours: ExitStack, theirs: ExitStack) -> int:
        read, write = theirs.enter_context(pipe())
        ours.callback(os.close, kept := os.dup(read))
        self._buffers[kept] = buffer
        return write

    @property
    def readers(self) -> Mapping[int, Callable[[int], bool]]:
        """For `watch`."""
        return dict.fromkeys(self._buffers, self._read)

    def _read(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK)
        self._buffers[descriptor] += chunk
        return bool(chunk)

    @property
    def is_flooded(self) -> bool:
        return max(len(self._stdout), len(self._stderr)) > self._max_bytes

    @property
    def stdout(self) -> bytes:
        return bytes(self._stdout[: self._max_bytes])

    @property
    def stderr(self) -> bytes:
        return bytes(self._stderr[: self._max_bytes])


def watch(
    readers: Mapping[int, Callable[[int], bool]], deadline: Callable[[], float], is_flooded: Callable[[], bool]
) -> None:
    """Call readers of descriptors as these become ready, until each has returned False, a flood, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for descriptor, read in readers.items():
            selector.register(descriptor, selectors.EVENT_READ, read)
        while selector.get_map() and not is_flooded():
            ready = selector.select(max(0.0, deadline() - time.monotonic()))
            if not ready:
                return
            for key, _ in ready:
                if not key.data(key.fd):
                    selector.unregister(key.fd)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Read and write end of a pipe, closed in the end; a process that was handed them keeps its own."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """A file without a name that holds these bytes, open for reading only."""
    with open(os.memfd_create("groupwise"), "wb") as file:
        file.write(content)
        file.flush()
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
