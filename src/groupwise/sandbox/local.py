"""The local tiers: a pool of fork servers, one program in each at a time; the parent keeps deadlines and caps output.

Each slot of the pool has a server for solvers and, when first needed, another for testers. A server is replaced after
any anomaly (deadline, flood, remains, its own death) and after `RUNS_PER_SERVER` runs.
"""

import queue
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, TypeVar

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Pair, Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.fork_server import ForkServer
from groupwise.sandbox.host import launcher, machine, make_cgroups, remove_cgroups
from groupwise.sandbox.seccomp import sandbox_filter
from groupwise.sandbox.supervision import Outcome, memory_file, run_connected, run_single

RUNS_PER_SERVER = 500
_SERVER_MB = 64
"""Memory of a fork server itself."""
_SOLVER, _TESTER = 0, 1
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


class _Slot:
    """The fork servers of one worker."""

    def __init__(self, start: Callable[[], ForkServer]) -> None:
        self._start = start
        self._servers: dict[int, ForkServer] = {}

    def server(self, role: int) -> ForkServer:
        """The server of a role, started or replaced where that is due."""
        if role in self._servers and self._servers[role].num_runs >= RUNS_PER_SERVER:
            self.discard(role)
        if role not in self._servers:
            self._servers[role] = self._start()
        return self._servers[role]

    def discard(self, role: int) -> None:
        server = self._servers.pop(role, None)
        if server is not None:
            server.end()


class LocalSandbox(Sandbox):
    """Fork servers on this machine. Subclasses say how one is started."""

    advice: ClassVar[str]
    """What to do where none starts."""

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._slots: queue.LifoQueue[_Slot] = queue.LifoQueue()
        for _ in range(config.num_workers):
            self._slots.put(_Slot(self.start_server))

    @abstractmethod
    def server_command(self, filter_fd: int) -> list[str]:
        """Command line of a fork server; bubblewrap reads the filter for the whole sandbox from that descriptor."""

    def start_server(self) -> ForkServer:
        """A new fork server.

        Raises:
            SandboxError: this host does not let it start.
        """
        config = self.config
        with memory_file(sandbox_filter(machine())) as filter_fd:
            command = self.server_command(filter_fd)
            groups = make_cgroups(config.memory_mb + config.files_mb + _SERVER_MB, config.max_processes + 4)
            try:
                return ForkServer([*launcher(groups), *command], filter_fd, groups)
            except SandboxError as error:
                remove_cgroups(groups)
                raise SandboxError(f"{config.tier} does not start here ({error}): {self.advice}") from None

    def run_command(self, program: Program) -> RunResult:
        """Run a program of the host; tiers that can do it override this."""
        raise SandboxError(f"tier {self.config.tier} runs Python sources only, not {program.command[0]}")

    def run_many(self, programs: Sequence[Program]) -> list[RunResult]:
        """One result per program; up to `num_workers` run at a time."""
        return self._map(
            lambda program: self.run_command(program) if program.command else self._run_source(program), programs
        )

    def run_pairs(self, pairs: Sequence[Pair]) -> list[tuple[RunResult, RunResult]]:
        """Results of tester and solver; up to `num_workers` pairs run at a time."""
        return self._map(self._run_pair, pairs)

    def _map(self, function: Callable[[_Item], _Value], items: Sequence[_Item]) -> list[_Value]:
        if self.config.num_workers == 1 or len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(self.config.num_workers) as threads:
            return list(threads.map(function, items))

    def _run_source(self, program: Program) -> RunResult:
        return self._attempt([_SOLVER], lambda servers: run_single(servers[0], program, self.config))[0]

    def _run_pair(self, pair: Pair) -> tuple[RunResult, RunResult]:
        tester, solver = self._attempt([_TESTER, _SOLVER], lambda servers: run_connected(servers, pair, self.config))
        return tester, solver

    def _attempt(
        self, roles: Sequence[int], run: Callable[[Sequence[ForkServer]], Sequence[Outcome]]
    ) -> list[RunResult]:
        """Run with the servers of one slot; if one of them fails, once more with new ones."""
        slot = self._slots.get()
        try:
            results = _run_once(slot, roles, run)
            if any(result.status is Status.FAILED for result in results):
                results = _run_once(slot, roles, run)
        finally:
            self._slots.put(slot)
        return results

    def close(self) -> None:
        """End every fork server; later runs start new ones."""
        for slot in [self._slots.get() for _ in range(self.config.num_workers)]:
            slot.discard(_SOLVER)
            slot.discard(_TESTER)
            self._slots.put(slot)


def _run_once(
    slot: _Slot, roles: Sequence[int], run: Callable[[Sequence[ForkServer]], Sequence[Outcome]]
) -> list[RunResult]:
    outcomes: Sequence[Outcome] = ()
    try:
        outcomes = run([slot.server(role) for role in roles])
    finally:
        kept = [outcome.is_reusable for outcome in outcomes] or [False] * len(roles)
        for role, is_kept in zip(roles, kept, strict=True):
            if not is_kept:
                slot.discard(role)
    return [outcome.result for outcome in outcomes]
