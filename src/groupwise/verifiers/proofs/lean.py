"""Proofs for Lean 4: what may be compiled, the places that compile it, and the reading of Lean's messages.

The statement is the problem's; the proof holds no command (`complete`); Lean must report no error; and the report
of `#print axioms`, which is appended, must name no axiom but the three that Mathlib rests on. A hole (`sorry`), a
compiled computation (`native_decide`) or a new axiom would be among them.

Files are compiled by the program `lean` in the sandbox, or by a server like the Kimina Lean server:
`POST {url}/verify` with `{"codes": [{"custom_id": "...", "proof": "<file>"}], "timeout": 30}` is answered by
`{"results": [{"custom_id": "...", "error": null, "response": {"messages": [{"severity": "info", "data": "..."}]}}]}`.
An `error` that says "timed out" means that the proof was too slow; any other is the failure of the server.
"""

import hashlib
import json
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from groupwise.config import ReadIf, read_toml
from groupwise.errors import ConfigError, VerifierError
from groupwise.runs.progress import counted
from groupwise.sandbox.base import Closing, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import LazySandbox
from groupwise.sandbox.post import OversizedError, post
from groupwise.types import Outcome
from groupwise.verifiers.base import ExtractingConfig, Finding
from groupwise.verifiers.proofs.base import PATIENCE, SEARCHED, LeanConfig, ProofVerifier, RuleError, without_comments

_SEVERITIES = ("error", "warning", "info", "information", "trace")


class Message(NamedTuple):
    """A message of Lean."""

    is_error: bool
    text: str


Reply = tuple[Message, ...] | Finding  # all that Lean said about a file, or the finding that needs none of it


def read_message(fields: Mapping[str, Any]) -> Message:
    """A message of Lean's JSON form (ValueError, KeyError, TypeError: it is not of that form)."""
    severity, text = fields["severity"], fields["data"]
    if severity not in _SEVERITIES or not isinstance(text, str):
        raise ValueError(f"a message of severity {severity!r:.40}")
    return Message(severity == "error", text)


class LeanProgram:
    """Compiles each file in a separate run; the sandbox opens when first needed."""

    def __init__(self, config: LeanConfig, confinement: SandboxConfig, sandbox: Sandbox | None = None) -> None:
        if shutil.which("lean", path=SEARCHED) is None:
            raise ConfigError(
                f"the verifier 'lean' needs a server (verifier.proof.lean_url) or the program lean in {SEARCHED} "
                "(Lean 4 is not in Debian: unpack its release below /usr/local)"
            )
        self._config, self._sandbox = config, LazySandbox(confinement, sandbox)

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        replies: list[Reply] = []
        command = ("env", "HOME=.", f"LEAN_PATH={self._config.lean_path}", "lean", "--json", "Answer.lean")
        programs = [self._config.program(command, {"Answer.lean": source.encode()}) for source in sources]
        for result in self._sandbox.run_many(programs):
            if result.status is Status.FAILED:
                replies.append(Finding(Outcome.CRASHED, f"the sandbox failed: {result.evidence}"))
            elif result.status is not Status.EXITED:  # if no timeout, it took too much processor time, memory or output
                outcome = Outcome.TIMEOUT if result.status is Status.TIMEOUT else Outcome.WRONG
                replies.append(Finding(outcome, f"Lean: {result.evidence}"))
            else:
                try:
                    replies.append(tuple(read_message(json.loads(line)) for line in result.stdout.splitlines()))
                except (ValueError, KeyError, TypeError, RecursionError):
                    output = (result.stdout + result.stderr)[:200]
                    fault = f"lean ended with {result.exit_code} and without messages: {output!r}"
                    replies.append(Finding(Outcome.CRASHED, fault))
        return replies

    def close(self) -> None:
        self._sandbox.close()


class LeanServer(Closing):
    """Sends every file in a separate request, at most `num_workers` at a time."""

    def __init__(self, config: LeanConfig, num_workers: int) -> None:
        self._config, self._num_workers = config, num_workers

    def compile_many(self, sources: Sequence[str]) -> list[Reply]:
        with ThreadPoolExecutor(self._num_workers) as threads:
            return list(counted("proofs compiled", threads.map(self._compile, sources), len(sources)))

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
        try:
            (result,) = json.loads(response.body)["results"]
            if result["custom_id"] != name:
                return _failure(f"it answered {result['custom_id']!r:.60}, which is not what was asked")
            if fault := result.get("error"):
                is_slow = "timed out" in fault
                return Finding(Outcome.WRONG, f"Lean: {fault:.200}") if is_slow else _failure(f"{fault:.200}")
            return tuple(map(read_message, result["response"].get("messages") or ()))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return _failure(f"no answer of the protocol ({type(error).__name__}): {response.body[:100]!r}")


def _failure(evidence: str) -> Finding:
    return Finding(Outcome.CRASHED, f"the Lean server failed: {evidence}")


_Backend = LeanProgram | LeanServer
AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
FORBIDDEN = frozenset(read_toml(Path(__file__).with_name("forbidden.toml"))["words"].split())
"""Words that are allowed nowhere: what leaves a hole, what trusts the compiler, every command, every metaprogram."""
_NAME = re.compile(r"(?:theorem|lemma)\s+(\S+)")
_WORD = re.compile(r"[^\W\d]\w*")
_MARKS = re.compile(r"#[A-Za-z]{2,}|@\[|[«»`]")
_OUTSIDE, _INSIDE = re.compile(r"/-|--"), re.compile(r"/-|-/")
_CONTROLS = {
    Outcome.CORRECT: "theorem groupwise_control : 1 + 1 = 2 := by rfl",
    Outcome.WRONG: "theorem groupwise_control : 1 + 1 = 3 := by rfl",
}
"""Files whose findings are known."""


class LeanVerifierConfig(ExtractingConfig):
    """Settings of the verifier of Lean proofs."""

    proof: LeanConfig = LeanConfig()
    """The program or server that checks proofs, and its limits."""
    sandbox: Annotated[SandboxConfig, ReadIf(lambda config: not config.proof.lean_url, "an empty proof.lean_url")] = (
        SandboxConfig()
    )
    """Sandbox in which the program `lean` runs."""
    num_workers: Annotated[int, ReadIf(lambda config: config.proof.lean_url, "proof.lean_url")] = Field(default=1, ge=1)
    """Proofs that a server is asked to check at the same time."""


class LeanVerifier(ProofVerifier):
    """Needs `problem.data["statement"]` (`theorem name ... := by`) and, where it needs imports, `["header"]`.

    A backend that misjudges one of two theorems whose truth is known is refused at the start (VerifierError).
    """

    Config = LeanVerifierConfig
    repeatable = False  # a program is timed
    config: LeanVerifierConfig

    def __init__(self, config: LeanVerifierConfig | None = None, backend: _Backend | None = None) -> None:
        super().__init__(config)
        self._backend = backend or (
            LeanServer(self.config.proof, self.config.num_workers)
            if self.config.proof.lean_url
            else LeanProgram(self.config.proof, self.config.sandbox)
        )
        for truth, source in _CONTROLS.items():
            (finding,) = self.judge([(source, "groupwise_control")])
            if finding.outcome is not truth:
                self.close()
                raise VerifierError(f"Lean finds `{source}` {finding.outcome}, not {truth}: {finding.evidence}")

    def job(self, header: str, statement: str, proof: str) -> tuple[str, str]:
        if (match := _NAME.search(statement)) is None:
            raise ValueError
        return complete(header, statement, proof), match[1]

    def judge(self, jobs: Sequence[tuple[str, str]]) -> list[Finding]:
        replies = self._backend.compile_many([f"{source}\n\n#print axioms {name}\n" for source, name in jobs])
        return [_find(reply, name) for reply, (_, name) in zip(replies, jobs, strict=True)]

    def close(self) -> None:
        self._backend.close()


def _find(reply: Reply, name: str) -> Finding:
    if isinstance(reply, Finding):
        return reply
    if errors := [message.text for message in reply if message.is_error]:
        return Finding(Outcome.WRONG, f"Lean: {' '.join(errors[0].split())[:300]}")
    # every report on the theorem must be clean, because a tactic may print a forged one beside the real one
    reports = [message.text for message in reply if message.text.startswith(f"'{name}' ")]
    if not reports:
        return Finding(Outcome.CRASHED, f"Lean reports neither an error nor the axioms of {name}")
    for report in reports:
        axioms = report.partition(" depends on axioms: [")[2].rstrip("] \n").replace(",", " ").split()
        if not axioms and "does not depend on any axioms" not in report:
            return Finding(Outcome.CRASHED, f"Lean's report on axioms is unreadable: {report[:200]!r}")
        if set(axioms) - AXIOMS:
            return Finding(Outcome.WRONG, f"it rests on {', '.join(sorted(set(axioms) - AXIOMS))[:300]}")
    return Finding(Outcome.CORRECT, "Lean accepts the proof, which rests on no axioms but those of Mathlib")


def complete(header: str, statement: str, proof: str) -> str:
    """The file to compile: header, statement, and the proof without comments (RuleError: names a forbidden word)."""
    theorem = statement.rstrip()
    theorem = f"{theorem} by" if theorem.endswith(":=") else theorem
    tactics = without_comments(proof, _OUTSIDE, _INSIDE)
    for prefix in (f"{header} {theorem}", theorem, "by"):  # the answer may repeat them, up to white space
        pattern = r"\s+".join(map(re.escape, prefix.split()))
        if match := re.match(rf"\s*{pattern}(?!\w)[^\S\n]*\n?", tactics):
            tactics = tactics[match.end() :]
            break
    for word in (*_WORD.findall(tactics), *_MARKS.findall(tactics)):
        if word in FORBIDDEN or not word.isidentifier():  # what is not an identifier is one of the marks
            raise RuleError(f"{word!r} is not allowed in a proof: give the problem's statement as it is, then tactics")
    return f"{header.rstrip()}\n\n{theorem}\n{tactics.rstrip()}\n"
