"""The program `lean` in the sandbox."""

import json
import math
import shutil
from collections.abc import Sequence

from groupwise.errors import ConfigError
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import Outcome
from groupwise.verifiers.base import Finding
from groupwise.verifiers.proofs.base import SEARCHED
from groupwise.verifiers.proofs.config import PATIENCE, LeanConfig
from groupwise.verifiers.proofs.lean_reply import Reply, read_message


class LeanProgram:
    """Compiles each file in a run of its own; the sandbox opens when first needed.

    Raises:
        ConfigError: `lean` is not installed where the sandbox could run it.
    """

    def __init__(self, config: LeanConfig, place: SandboxConfig, sandbox: Sandbox | None = None) -> None:
        if shutil.which("lean", path=SEARCHED) is None:
            raise ConfigError(
                f"the verifier 'lean' needs a server (verifier.proof.lean_url) or the program lean in {SEARCHED} "
                "(Lean 4 is not in Debian: unpack its release below /usr/local)"
            )
        self._config, self._place, self._sandbox = config, place, sandbox

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order.

        Raises:
            SandboxError: no sandbox can be had here.
        """
        self._sandbox = self._sandbox or open_sandbox(self._place)
        return list(map(_read, self._sandbox.run_many([self._program(source) for source in sources])))

    def close(self) -> None:
        """End the sandbox; it is opened again when needed."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def _program(self, source: str) -> Program:
        limits = self._config
        return Program(
            command=("env", "HOME=.", f"LEAN_PATH={limits.lean_path}", "lean", "--json", "Answer.lean"),
            files={"Answer.lean": source.encode()},
            wall_s=PATIENCE * limits.timeout_s,
            cpu_s=math.ceil(limits.timeout_s),
            memory_mb=limits.memory_mb,
        )


def _read(result: RunResult) -> Reply:
    if result.status is Status.FAILED:
        return Finding(Outcome.CRASHED, f"the sandbox failed: {result.evidence}")
    if result.status is Status.TIMEOUT:
        return Finding(Outcome.TIMEOUT, f"Lean: {result.evidence}")
    if result.status is not Status.EXITED:  # it took too much processor time, memory or output
        return Finding(Outcome.WRONG, f"Lean: {result.evidence}")
    try:
        return tuple(read_message(json.loads(line)) for line in result.stdout.splitlines())
    except (ValueError, KeyError, TypeError, RecursionError):
        said = (result.stdout + result.stderr)[:200]
        return Finding(Outcome.CRASHED, f"lean ended with {result.exit_code} and without messages: {said!r}")
