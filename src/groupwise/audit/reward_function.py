"""A user's own Python reward function as a verifier, in a process of its own whose deadline is kept here.

The file is the user's and is trusted as any program they run; what it does with a completion is what the audit finds
out. `reward(prompt, completion, reference) -> float`: a value above 0.5 counts as correct.
"""

from collections.abc import Sequence
from pathlib import Path

from groupwise.errors import VerifierError
from groupwise.tasks.base import Template
from groupwise.types import Outcome, Verdict
from groupwise.verifiers.base import Request, Verifier, VerifierConfig, WorkersConfig
from groupwise.verifiers.workers import START_S, Reply, WorkerPool

PAID = 0.5
"""Rewards above this count as correct."""
MEMORY_BYTES = 16 << 30
"""Address space of the process; the function may import large libraries."""


class RewardFunction(Verifier):
    """Judges by a function of the user's; `place` is `path/to/file.py:function`.

    Raises:
        VerifierError: the file or the function cannot be had.
    """

    Config = WorkersConfig

    def __init__(self, place: str, config: VerifierConfig | None = None, template: Template | None = None) -> None:
        super().__init__(config)
        path, _, name = place.rpartition(":")
        self._target = {"file": str(Path(path).resolve()), "function": name}
        self._template = template or Template()
        self._pool = WorkerPool("groupwise.audit._reward:reward", memory_bytes=MEMORY_BYTES)
        loaded = self._load()
        if loaded.status != "ok":
            self.close()
            raise VerifierError(f"{place} cannot be used: {loaded.evidence}")

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict per request; an exception is CRASHED, a killed process TIMEOUT or CRASHED."""
        return [_verdict(self._ask(request)) for request in requests]

    def _ask(self, request: Request) -> Reply:
        texts = [self._template.render(request.problem), request.text, request.problem.reference]
        reply = self._pool.call({**self._target, "arguments": texts}, self.verdict_s)
        if reply.status != "ok":  # perhaps a new process: its imports are no part of the next deadline
            self._load()
        return reply

    def _load(self) -> Reply:
        return self._pool.call(self._target, START_S)

    def close(self) -> None:
        """Kill the process."""
        self._pool.close()


def _verdict(reply: Reply) -> Verdict:
    if reply.status != "ok":
        return Verdict(Outcome(reply.status), {}, reply.evidence)
    outcome = Outcome.CORRECT if reply.value > PAID else Outcome.WRONG
    return Verdict(outcome, {"reward": reply.value}, f"the function returned {reply.value:g}")


def is_place(name: str) -> bool:
    """Whether a verifier's name is `path/to/file.py:function`."""
    return ".py:" in name
