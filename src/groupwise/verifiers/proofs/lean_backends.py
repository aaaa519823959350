"""Where Lean compiles files: the program `lean` in the sandbox, or a server like the Kimina Lean server.

A server: `POST {url}/verify` with `{"codes": [{"custom_id": "...", "proof": "<file>"}], "timeout": 30}` is answered by
`{"results": [{"custom_id": "...", "error": null, "response": {"messages": [{"severity": "info", "data": "..."}]}}]}`.
An `error` that says "timed out" means that the proof was too slow; any other is the failure of the server.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol

from groupwise.errors import ConfigError
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import Outcome
from groupwise.verifiers.base import Finding
from groupwise.verifiers.post import OversizedError, post
from groupwise.verifiers.proofs.base import PATIENCE, SEARCHED, LeanConfig

_SEVERITIES = ("error", "warning", "info", "information", "trace")


class Message(NamedTuple):
    """Something that Lean said."""

    is_error: bool
    text: str


Reply = tuple[Message, ...] | Finding
"""All that Lean said about a file, or the finding that needs none of it."""


class LeanBackend(Protocol):
    """Compiles files with Lean."""

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order."""

    def close(self) -> None:
        """End what was started; it may be used again."""


def read_message(fields: Mapping[str, Any]) -> Message:
    """A message of Lean's JSON form.

    Raises:
        ValueError, KeyError, TypeError: it is not of that form.
    """
    severity, text = fields["severity"], fields["data"]
    if severity not in _SEVERITIES or not isinstance(text, str):
        raise ValueError(f"a message of severity {severity!r:.40}")
    return Message(severity == "error", text)


class LeanProgram:
    """Compiles each file in a separate run; the sandbox opens when first needed.

    Raises:
        ConfigError: `lean` is not installed where the sandbox could run it.
    """

    def __init__(self, config: LeanConfig, confinement: SandboxConfig, sandbox: Sandbox | None = None) -> None:
        if shutil.which("lean", path=SEARCHED) is None:
            raise ConfigError(
                f"the verifier 'lean' needs a server (verifier.proof.lean_url) or the program lean in {SEARCHED} "
                "(Lean 4 is not in Debian: unpack its release below /usr/local)"
            )
        self._config, self._confinement, self._sandbox = config, confinement, sandbox

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order.

        Raises:
            SandboxError: no sandbox is available here.
        """
        self._sandbox = self._sandbox or open_sandbox(self._confinement)
        return list(map(_read_run, self._sandbox.run_many([self._program(source) for source in sources])))

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


def _read_run(result: RunResult) -> Reply:
    if result.status is Status.FAILED:
        return Finding(Outcome.CRASHED, f"the sandbox failed: {result.evidence}")
    if result.status is Status.TIMEOUT:
        return Finding(Outcome.TIMEOUT, f"Lean: {result.evidence}")
    if result.status is not Status.EXITED:  # it took too much processor time, memory or output
        return Finding(Outcome.WRONG, f"Lean: {result.evidence}")
    try:
        return tuple(read_message(json.loads(line)) for line in result.stdout.splitlines())
    except (ValueError, KeyError, TypeError, RecursionError):
        output = (result.stdout + result.stderr)[:200]
        return Finding(Outcome.CRASHED, f"lean ended with {result.exit_code} and without messages: {output!r}")


class LeanServer:
    """Sends every file in a separate request, at most `num_workers` at a time."""

    def __init__(self, config: LeanConfig, num_workers: int) -> None:
        self._config, self._num_workers = config, num_workers

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        """One reply per file, in the same order."""
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(threads.map(self._compile, sources))

    def close(self) -> None:
        """Nothing stays open between requests."""

    def _compile(self, source: str) -> Reply:
        seconds, name = self._config.timeout_s, hashlib.sha256(source.encode()).hexdigest()[:32]
        body = {"codes": [{"custom_id": name, "proof": source}], "timeout": math.ceil(seconds)}
        url, headers = f"{self._config.lean_url.rstrip('/')}/verify", {"Content-Type": "application/json"}
        try:
            response = post(url, json.dumps(body).encode(), headers, PATIENCE * seconds)
        except TimeoutError:
            return Finding(Outcome.TIMEOUT, f"the Lean server did not answer within {PATIENCE * seconds:g} s")
        except (OSError, HTTPException, ValueError, OversizedError) as error:
            return _failure(f"{type(error).__name__}: {error}")
        if response.status != 200:
            return _failure(f"HTTP status {response.status}: {response.body[:100]!r}")
        return _read_response(response.body, name)


def _read_response(body: bytes, name: str) -> Reply:
    try:
        (result,) = json.loads(body)["results"]
        if result["custom_id"] != name:
            return _failure(f"it answered {result['custom_id']!r:.60}, which is not what was asked")
        if error := result.get("error"):
            return Finding(Outcome.WRONG, f"Lean: {error:.200}") if "timed out" in error else _failure(f"{error:.200}")
        return tuple(map(read_message, result["response"].get("messages") or ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _failure(f"no answer of the protocol ({type(error).__name__}): {body[:100]!r}")


def _failure(evidence: str) -> Finding:
    return Finding(Outcome.CRASHED, f"the Lean server failed: {evidence}")
