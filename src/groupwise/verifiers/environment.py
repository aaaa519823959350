"""The verifier of environments of the library `verifiers`: each problem is judged by its environment's rubric.

Every reward function of the rubric is a part of the reward by its name, times its weight; functions without a weight
are measures. A function that raises or returns no finite number gives no verdict; the library would count 0.
"""

import threading
from collections.abc import Mapping, Sequence
from itertools import groupby

from pydantic import Field

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Asks, Request, Verifier
from groupwise.verifiers.python import PythonConfig
from groupwise.verifiers.workers.pool import Reply, WorkerPool

KEY = "verifiers"
"""Field of a problem's data that says where the problem comes from: environment, arguments, part, row and messages."""
TARGET = "groupwise.verifiers._environment:judge"
"""What runs in the processes."""


class EnvironmentConfig(PythonConfig):
    """What is done with the rewards of an environment."""

    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Seconds one completion may take before its worker process is killed and the outcome is `timeout`."""


class EnvironmentVerifier(Verifier):
    """Asks the environment of the problem, in worker processes that have loaded it."""

    Config = EnvironmentConfig
    accepts_references = False
    config: EnvironmentConfig

    def __init__(self, config: EnvironmentConfig | None = None) -> None:
        super().__init__(config or EnvironmentConfig(kind="verifiers"))
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, str], WorkerPool] = {}

    @property
    def name(self) -> str:
        """The environments needed so far."""
        return ", ".join(environment for environment, _ in self._pools) or "the environment"

    @property
    def repeatable(self) -> bool:
        """As the recipe says."""
        return self.config.repeatable

    def check(self, problems: Sequence[Problem], template: Asks) -> None:
        """Refuse problems of other tasks.

        Raises:
            ConfigError: names the problem.
        """
        for problem in problems:
            if KEY not in problem.data:
                raise ConfigError(
                    f"problem {problem.id} comes from no environment; verifier.kind = 'verifiers' judges only problems "
                    "of the task 'verifiers'"
                )

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request; a fault of a reward function is CRASHED, a killed process TIMEOUT or CRASHED."""
        verdicts = []
        for environment, group in groupby(requests, key=_environment):
            batch = list(group)
            calls = [
                {**request.problem.data[KEY], "completion": request.text, "truncated": request.truncated}
                for request in batch
            ]
            replies = self._pool(environment).map(calls, self.config.timeout_s)
            verdicts += [self._verdict(*pair) for pair in zip(batch, replies, strict=True)]
        return verdicts

    def _pool(self, environment: tuple[str, str]) -> WorkerPool:
        with self._lock:
            if environment not in self._pools:
                request = {"environment": environment[0], "arguments": environment[1]}
                memory = int(self.config.memory_gb * 2**30)
                self._pools[environment] = WorkerPool(
                    TARGET, self.config.num_workers, memory, prepare=request, inherit=True
                )
            return self._pools[environment]

    def _verdict(self, request: Request, reply: Reply) -> Verdict:
        name, fault = _environment(request)[0], reply.value.get("fault") if reply.status == "ok" else reply.evidence
        if fault is not None:
            outcome = Outcome.CRASHED if reply.status == "ok" else Outcome(reply.status)
            return Verdict(outcome, {}, f"the environment {name}: {fault}, for the completion {request.text[:80]!r}")
        parts: Mapping[str, float] = reply.value["parts"]
        outcome = Outcome.CORRECT if sum(parts.values()) > self.config.correct_above else Outcome.WRONG
        values = ", ".join(f"{part} {value:g}" for part, value in parts.items())
        return Verdict(outcome, parts, f"the environment {name} gave {values}", measures=reply.value["measures"])

    def close(self) -> None:
        """Kill the processes."""
        for pool in self._pools.values():
            pool.close()


def _environment(request: Request) -> tuple[str, str]:
    origin = request.problem.data[KEY]
    return origin["environment"], origin["arguments"]
