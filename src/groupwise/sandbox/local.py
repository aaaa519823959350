"""The local tiers: programs run in a pool of fork servers, one in each at a time.

The parent keeps deadlines and caps output. Each slot of the pool has a server for solvers and, when first needed,
another for testers. A server is replaced after any anomaly (deadline, flood, remains, its own death) and after
`RUNS_PER_SERVER` runs.
"""

import json
import os
import queue
import selectors
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import ClassVar

from groupwise.errors import SandboxError
from groupwise.sandbox import host
from groupwise.sandbox.base import FILES_MB, OUTPUT_KB, Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.fork_server import ForkServer, Report
from groupwise.sandbox.seccomp import run_filter, sandbox_filter
from groupwise.sandbox.zygote import landlock_version

RUNS_PER_SERVER = 500
_SERVER_MB = 64  # memory of a fork server itself
_CHUNK = 1 << 16
_GRACE_S = 0.5  # seconds that a solver may take to end after its tester
_SOLVER, _TESTER = 0, 1
_READABLE = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/zero", "/dev/urandom")


class Outputs:
    """Standard output and error of one program, read as they come."""

    def __init__(self, output_kb: int = OUTPUT_KB) -> None:
        self.start, self._most = time.monotonic(), output_kb << 10
        self._stdout, self._stderr = bytearray(), bytearray()
        self._buffers: dict[int, bytearray] = {}

    def open(self, ours: ExitStack, theirs: ExitStack, *, error: bool) -> int:
        read, write = theirs.enter_context(pipe())
        ours.callback(os.close, kept := os.dup(read))
        self._buffers[kept] = self._stderr if error else self._stdout
        return write

    @property
    def readers(self) -> Mapping[int, Callable[[int], bool]]:
        return dict.fromkeys(self._buffers, self._read)

    def _read(self, descriptor: int) -> bool:
        chunk = os.read(descriptor, _CHUNK)
        self._buffers[descriptor] += chunk
        return bool(chunk)

    @property
    def is_flooded(self) -> bool:
        return max(len(self._stdout), len(self._stderr)) > self._most

    @property
    def stderr(self) -> bytes:
        return bytes(self._stderr[: self._most])

    def result(self, status: Status, exit_code: int | None, evidence: str, end: float | None = None) -> RunResult:
        seconds = (end or time.monotonic()) - self.start
        return RunResult(status, exit_code, bytes(self._stdout[: self._most]), self.stderr, seconds, evidence)


def watch(
    readers: Mapping[int, Callable[[int], bool]], deadline: Callable[[], float], is_flooded: Callable[[], bool]
) -> None:
    """Call readers of descriptors as these become ready, until each has returned False, a flood, or the deadline."""
    with selectors.DefaultSelector() as selector:
        for descriptor, read in readers.items():
            selector.register(descriptor, selectors.EVENT_READ, read)
        while selector.get_map() and not is_flooded():
            if not (ready := selector.select(max(0.0, deadline() - time.monotonic()))):
                return
            for key, _ in ready:
                if not key.data(key.fd):
                    selector.unregister(key.fd)


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """Open a pipe (read end, write end) and close it in the end; a process that was handed an end keeps its own."""
    read, write = os.pipe()
    try:
        yield read, write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """Make a file without a name that holds these bytes, open for reading only."""
    with open(os.memfd_create("groupwise"), "wb") as file:
        file.write(content)
        file.flush()
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_Outcome = tuple[RunResult, bool]  # a result, and true when the server may be used again


class _Run:
    def __init__(self, server: ForkServer, program: Program, config: SandboxConfig) -> None:
        self._server, self._program, self._most_mb = server, program, config.memory_mb
        self.limits, self.outputs = program.limits(config), Outputs(program.output_kb)
        self.end: float | None = None  # None until the server has said how it ended
        self._report: Report | None = None

    def begin(self, ours: ExitStack, stdin: int | None = None, stdout: int | None = None) -> None:
        program = self._program
        limits = self.limits._asdict() | {"memory_mb": min(self.limits.memory_mb, self._most_mb)}
        del limits["wall_s"]  # the parent keeps it
        files = {name: content.decode("latin-1") for name, content in program.files.items()}
        message = json.dumps({"source": program.source, "files": files, "limits": limits}).encode("ascii")
        with ExitStack() as theirs:
            request = theirs.enter_context(memory_file(message))
            if stdin is None:
                stdin = theirs.enter_context(memory_file(program.stdin))
            if stdout is None:
                stdout = self.outputs.open(ours, theirs, error=False)
            self._server.begin(request, stdin, stdout, self.outputs.open(ours, theirs, error=True))

    @property
    def readers(self) -> Mapping[int, Callable[[int], bool]]:
        return {**self.outputs.readers, self._server.fileno(): self._read_report}

    def _read_report(self, _: int) -> bool:
        self._report, self.end = self._server.report(), time.monotonic()
        return False

    def outcome(self) -> _Outcome:
        how: tuple[Status, int | None, str]
        if self.outputs.is_flooded:
            how = Status.FLOODED, None, f"it wrote more than {self._program.output_kb} KiB"
        elif self.end is None:
            how = Status.TIMEOUT, None, f"it did not end within {self.limits.wall_s:g} s"
        elif self._report is None:
            how = Status.FAILED, None, "the sandbox ended before it said how the program did"
        else:
            how = read_exit_code(os.waitstatus_to_exitcode(self._report[0]))
        is_reusable = self._report is not None and self._report[1] and not self.outputs.is_flooded
        return self.outputs.result(*how, self.end), is_reusable


def read_exit_code(code: int) -> tuple[Status, int | None, str]:
    """Return status, exit code and evidence of a process that ended; a negative code is a signal's number."""
    if code >= 0:
        return Status.EXITED, code, f"exit status {code}" if code else ""
    known: dict[int, str] = {
        signal.SIGXCPU: "its processor time was used up",
        signal.SIGKILL: "killed by the kernel at a limit",
    }
    return Status.SIGNALLED, code, f"signal {-code}: {known.get(-code) or signal.strsignal(-code)}"


class LocalSandbox(Sandbox):
    """Fork servers on this machine. Subclasses say how one is started."""

    advice: ClassVar[str]  # the end of the message where no server starts: what to do

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._slots: queue.LifoQueue[dict[int, ForkServer]] = queue.LifoQueue()  # a worker's servers by role
        for _ in range(config.num_workers):
            self._slots.put({})

    @abstractmethod
    def server_command(self, filter_fd: int) -> list[str]:
        """Return the command of a fork server; bubblewrap reads the filter for the sandbox from that descriptor."""

    def start_server(self) -> ForkServer:
        config = self.config
        with memory_file(sandbox_filter(host.machine())) as filter_fd:
            command = self.server_command(filter_fd)
            groups = host.make_cgroups(config.memory_mb + FILES_MB + _SERVER_MB)
            try:
                return ForkServer([*host.launcher(groups), *command], {}, pass_fds=[filter_fd], groups=groups)
            except SandboxError as error:
                host.remove_cgroups(groups)
                raise SandboxError(f"{config.tier} does not start here ({error}): {self.advice}") from None

    def run_command(self, program: Program) -> RunResult:
        raise SandboxError(f"tier {self.config.tier} runs Python sources only, not {program.command[0]}")

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        if self.config.num_workers == 1 or len(runs) < 2:
            return [self._run(run) for run in runs]
        with ThreadPoolExecutor(self.config.num_workers) as threads:
            return list(threads.map(self._run, runs))

    def _run(self, programs: Sequence[Program]) -> list[RunResult]:
        if programs[0].command:
            return [self.run_command(programs[0])]
        servers = self._slots.get()
        try:
            results = self._attempt(servers, programs)
            is_failed = any(result.status is Status.FAILED for result in results)
            return self._attempt(servers, programs) if is_failed else results
        finally:
            self._slots.put(servers)

    def _attempt(self, servers: dict[int, ForkServer], programs: Sequence[Program]) -> list[RunResult]:
        roles, outcomes = (_TESTER, _SOLVER)[-len(programs) :], list[_Outcome]()
        try:
            for role in roles:
                if role in servers and servers[role].num_runs >= RUNS_PER_SERVER:
                    servers.pop(role).end()
                if role not in servers:
                    servers[role] = self.start_server()
            pairs = zip(roles, programs, strict=True)
            first, *others = runs = [_Run(servers[role], program, self.config) for role, program in pairs]
            with ExitStack() as ours:
                if others:
                    with pipe() as (from_tester, to_solver), pipe() as (from_solver, to_tester):
                        first.begin(ours, from_solver, to_solver)
                        others[0].begin(ours, from_tester, to_tester)
                else:
                    first.begin(ours)
                latest = first.outputs.start + max(run.limits.wall_s for run in runs)
                watch(
                    {descriptor: read for run in runs for descriptor, read in run.readers.items()},
                    lambda: latest if first.end is None or not others else min(latest, first.end + _GRACE_S),
                    lambda: any(run.outputs.is_flooded for run in runs),
                )
            outcomes = [run.outcome() for run in runs]
        finally:
            for index, role in enumerate(roles):
                if role in servers and not (outcomes and outcomes[index][1]):
                    servers.pop(role).end()
        return [result for result, _ in outcomes]

    def close(self) -> None:
        for servers in [self._slots.get() for _ in range(self.config.num_workers)]:
            for server in servers.values():
                server.end()
            self._slots.put({})


class LandlockSandbox(LocalSandbox):
    """Tier `landlock`, for hosts that forbid namespaces: the server confines itself by landlock, seccomp and limits.

    Weaker than `bubblewrap`: process numbers, the network's existence and the names of files can be seen; there is no
    place to write, so only Python sources without files run. In exchange a program may start neither processes nor
    threads, so that it ends with its process.
    """

    advice: ClassVar[str] = 'it needs Linux 5.13 or later with landlock switched on; or set sandbox.tier = "bubblewrap"'

    def server_command(self, filter_fd: int) -> list[str]:
        if landlock_version() == 0:
            raise SandboxError(f"this kernel has no landlock: {self.advice}")
        program, prefix = host.reachable_interpreter()
        boot = {
            "run_filter": run_filter(host.machine(), threads=False).hex(),
            "sandbox_filter": sandbox_filter(host.machine(), metadata=False).hex(),
            "readable": [f"{prefix}/lib", *_READABLE],
            "directory": "/",
        }
        environment = [f"{name}={value}" for name, value in host.zygote_environment(str(prefix)).items()]
        return ["/usr/bin/env", "-i", *environment, *host.zygote_command(str(program), boot)]

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        if any(program.files for run in runs for program in run):
            raise SandboxError("tier landlock has no place for files; programs with files need tier bubblewrap")
        return super().run_all(runs)
