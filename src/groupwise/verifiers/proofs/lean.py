"""Proofs for Lean 4, compiled by the program `lean` in the sandbox or by a server.

The statement is the problem's; the proof holds no command (`lean_script`); Lean must report no error; and the report
of `#print axioms`, which we append, must name no axiom but the three that Mathlib rests on. A hole (`sorry`), a
compiled computation (`native_decide`) or an axiom of one's own would be among them.
"""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf
from groupwise.errors import VerifierError
from groupwise.sandbox.base import SandboxConfig
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import ExtractingConfig, Finding
from groupwise.verifiers.proofs.base import ProofVerifier
from groupwise.verifiers.proofs.config import LeanConfig
from groupwise.verifiers.proofs.lean_program import LeanProgram
from groupwise.verifiers.proofs.lean_reply import LeanBackend, Message, Reply
from groupwise.verifiers.proofs.lean_script import complete
from groupwise.verifiers.proofs.lean_server import LeanServer
from groupwise.verifiers.proofs.natural_deduction import RuleError

AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
_NAME = re.compile(r"(?:theorem|lemma)\s+(\S+)")
_CONTROLS = {
    Outcome.CORRECT: "theorem groupwise_control : 1 + 1 = 2 := by rfl",
    Outcome.WRONG: "theorem groupwise_control : 1 + 1 = 3 := by rfl",
}
"""Files whose findings are known."""


class LeanVerifierConfig(ExtractingConfig):
    """Settings of the verifier of Lean proofs."""

    proof: LeanConfig = LeanConfig()
    """Who checks proofs, and what checking one may take."""
    sandbox: Annotated[SandboxConfig, ReadIf(lambda own: not own.proof.lean_url, "an empty proof.lean_url")] = (
        SandboxConfig()
    )
    """Where the program `lean` runs."""
    num_workers: Annotated[int, ReadIf(lambda own: own.proof.lean_url, "proof.lean_url")] = Field(default=1, ge=1)
    """Proofs that a server is asked to check at one time."""


class LeanVerifier(ProofVerifier):
    """Needs `problem.data["statement"]` (`theorem name ... := by`) and, where it needs imports, `["header"]`.

    Raises:
        ConfigError: there is neither an address of a server nor the program `lean`.
        VerifierError: the backend fails, or misjudges two theorems of which we know the truth.
    """

    Config = LeanVerifierConfig
    repeatable = False  # a program is timed
    config: LeanVerifierConfig

    def __init__(self, config: LeanVerifierConfig | None = None, backend: LeanBackend | None = None) -> None:
        super().__init__(config)
        self._backend = backend or _make_backend(self.config)
        for wanted, source in _CONTROLS.items():
            (reply,) = self._backend.compile_many([_with_report(source, "groupwise_control")])
            found = _find(reply, "groupwise_control")
            if found.outcome is not wanted:
                self.close()
                raise VerifierError(f"Lean finds `{source}` {found.outcome}, not {wanted}: {found.evidence}")

    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        """One finding per problem and proof; equal files are compiled once."""
        files = [_file(problem, proof) for problem, proof in proofs]
        distinct = list(dict.fromkeys(one for one in files if not isinstance(one, Finding)))
        replies = self._backend.compile_many([_with_report(*one) for one in distinct])
        found = {one: _find(reply, one[1]) for one, reply in zip(distinct, replies, strict=True)}
        return [
            one if isinstance(one, Finding) else Finding(found[one].outcome, found[one].evidence, proof.strip())
            for one, (_, proof) in zip(files, proofs, strict=True)
        ]

    def close(self) -> None:
        """End what the backend started; it may be used again."""
        self._backend.close()


def _make_backend(config: LeanVerifierConfig) -> LeanBackend:
    if config.proof.lean_url:
        return LeanServer(config.proof, config.num_workers)
    return LeanProgram(config.proof, config.sandbox)


def _file(problem: Problem, proof: str) -> tuple[str, str] | Finding:
    """The file to compile and the theorem's name, or the finding that needs no Lean."""
    statement, header = problem.data.get("statement"), problem.data.get("header", "")
    named = _NAME.search(statement) if isinstance(statement, str) else None
    if named is None or not isinstance(statement, str) or not isinstance(header, str):
        return Finding(Outcome.CRASHED, f"problem {problem.id} has no usable statement: {statement!r:.100}")
    try:
        return complete(header, statement, proof), named[1]
    except RuleError as error:
        return Finding(Outcome.WRONG, str(error), proof.strip())


def _with_report(source: str, name: str) -> str:
    return f"{source}\n\n#print axioms {name}\n"


def _find(reply: Reply, name: str) -> Finding:
    if isinstance(reply, Finding):
        return reply
    errors = [message.text for message in reply if message.is_error]
    if errors:
        return Finding(Outcome.WRONG, f"Lean: {' '.join(errors[0].split())[:300]}")
    return _find_axioms(reply, name)


def _find_axioms(messages: Sequence[Message], name: str) -> Finding:
    """Every report on the theorem must be clean, for a tactic may print a forged one beside the real one."""
    reports = [message.text for message in messages if message.text.startswith(f"'{name}' ")]
    if not reports:
        return Finding(Outcome.CRASHED, f"Lean reports neither an error nor the axioms of {name}")
    for report in reports:
        listed = report.partition(" depends on axioms: [")[2].rstrip("] \n").replace(",", " ").split()
        if not listed and "does not depend on any axioms" not in report:
            return Finding(Outcome.CRASHED, f"Lean's report on axioms is unreadable: {report[:200]!r}")
        if set(listed) - AXIOMS:
            return Finding(Outcome.WRONG, f"it rests on {', '.join(sorted(set(listed) - AXIOMS))[:300]}")
    return Finding(Outcome.CORRECT, "Lean accepts the proof, which rests on no other axioms than Mathlib")
