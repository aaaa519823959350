"""Proofs for Coq, compiled by `coqc` in the sandbox.

The statement never comes from the answer, and a proof must pass three fences:

1. the script holds tactics only (`tactics_only`);
2. between our `Theorem` and `Qed` it compiles, in a sandbox that ends with the run; only the compiled file leaves;
3. in a fresh sandbox, a file of ours states the theorem again before it loads that compiled file, gives the proof
   exactly that type, and `Print Assumptions` says that it rests on nothing.
"""

import base64
import binascii
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from groupwise.errors import ConfigError
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import LazySandbox
from groupwise.types import Outcome
from groupwise.verifiers.base import ExtractingConfig, Finding
from groupwise.verifiers.proofs.base import SEARCHED, ProofConfig, ProofVerifier, RuleError, without_comments

CLOSED = b"Closed under the global context"
_FINDLIB = b'path="/usr/local/lib/ocaml:/usr/lib/ocaml:/usr/lib64/ocaml"\n'  # the sandbox has no /etc/ocamlfind.conf
_COQC = "export HOME=. OCAMLFIND_CONF=findlib.conf; coqc -q -noglob"
_STATED = "{header}\nDefinition groupwise_statement : Prop := {statement}.\n"
_ANSWER = "{header}\nTheorem groupwise_answer : {statement}.\nProof.\n{script}\nQed.\n"
_CHECK = (
    _STATED + "Require Answer.\n"
    "Definition groupwise_checked : groupwise_statement := Answer.groupwise_answer.\n"
    "Print Assumptions groupwise_checked.\n"
)
_COMMENT = re.compile(r"\(\*|\*\)")
_PROOF = re.compile(r"\A\s*Proof(?:\s+using[^.]*)?\.(?=\s|$)")
_END = re.compile(r"(?:^|(?<=\s))(?:Qed|Defined)\.\s*$")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_BULLETS = re.compile(r"(?:\s|[-+*{}]|[0-9]+\s*:|all\s*:)*")


class CoqConfig(ExtractingConfig):
    """Settings of the verifier of Coq proofs."""

    proof: ProofConfig = ProofConfig()
    """Limits of checking one proof."""
    sandbox: SandboxConfig = SandboxConfig()
    """Sandbox in which Coq runs."""


class _Job(NamedTuple):
    header: str
    statement: str
    script: str


class CoqVerifier(ProofVerifier):
    """Needs `problem.data["statement"]` (a Prop, without full stop) and, where it needs imports, `["header"]`."""

    Config = CoqConfig
    repeatable = False  # a program is timed
    config: CoqConfig

    def __init__(self, config: CoqConfig | None = None, sandbox: Sandbox | None = None) -> None:
        super().__init__(config)
        if shutil.which("coqc", path=SEARCHED) is None:
            raise ConfigError(
                f"the verifier 'coq' needs the program coqc in {SEARCHED}; install it (Debian: apt-get install coq)"
            )
        self._sandbox = LazySandbox(self.config.sandbox, sandbox)
        self._good_statements: set[tuple[str, str]] = set()

    def job(self, header: str, statement: str, proof: str) -> _Job:
        return _Job(header, statement, tactics_only(proof))

    def judge(self, jobs: Sequence[_Job]) -> list[Finding]:
        build = f"{_COQC} Answer.v >/dev/null && base64 -w0 Answer.vo"
        answers = [self._program(build, {"Answer.v": _ANSWER.format(**job._asdict())}) for job in jobs]
        results = self._sandbox.run_many(answers)
        checks = []
        for job, result in zip(jobs, results, strict=True):
            if _succeeded(result):
                source = _CHECK.format(header=job.header, statement=job.statement)
                try:
                    answer = base64.b64decode(result.stdout, validate=True)
                except binascii.Error:
                    answer = b""  # no compiled file: the check says so
                checks.append(self._program(f"{_COQC} Check.v", {"Check.v": source, "Answer.vo": answer}))
        check_results = iter(self._sandbox.run_many(checks))
        return [
            _judge_check(job, next(check_results)) if _succeeded(result) else self._judge_failure(job, result)
            for job, result in zip(jobs, results, strict=True)
        ]

    def _judge_failure(self, job: _Job, result: RunResult) -> Finding:
        """Judge a script that did not compile: wrong, unless the statement does not compile either."""
        if result.status is Status.FAILED:
            return Finding(Outcome.CRASHED, f"the sandbox failed: {result.evidence}")
        if result.status is Status.TIMEOUT:
            return Finding(Outcome.TIMEOUT, result.evidence, job.script.strip())
        if (job.header, job.statement) not in self._good_statements:
            source = {"Stated.v": _STATED.format(header=job.header, statement=job.statement)}
            stated = self._sandbox.run(self._program(f"{_COQC} Stated.v", source))
            if not _succeeded(stated):
                return Finding(Outcome.CRASHED, f"the problem's statement does not compile: {_complaint(stated)}")
            self._good_statements.add((job.header, job.statement))
        return Finding(Outcome.WRONG, _complaint(result), job.script.strip())

    def _program(self, command: str, files: Mapping[str, str | bytes]) -> Program:
        contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
        return self.config.proof.program(("sh", "-c", command), {"findlib.conf": _FINDLIB, **contents})

    def close(self) -> None:
        self._sandbox.close()


def _judge_check(job: _Job, result: RunResult) -> Finding:
    """Judge by the run of our check file; if it does not run to its end, the verifier failed."""
    if result.status is Status.TIMEOUT:
        return Finding(Outcome.TIMEOUT, f"the check of the compiled proof: {result.evidence}", job.script.strip())
    if result.status is not Status.EXITED:
        return Finding(Outcome.CRASHED, f"the check of the compiled proof: {_complaint(result)}")
    assumptions = result.stdout.strip()
    if result.exit_code == 0 and assumptions == CLOSED:
        return Finding(Outcome.CORRECT, "Coq accepts the proof, which rests on no axiom", job.script.strip())
    fault = f"it rests on {_one_line(assumptions)}" if result.exit_code == 0 else _complaint(result)
    return Finding(Outcome.WRONG, fault, job.script.strip())


def _succeeded(result: RunResult) -> bool:
    return result.status is Status.EXITED and result.exit_code == 0


def _complaint(result: RunResult) -> str:
    _, _, error = result.stderr.partition(b"Error:")
    return f"Coq: {_one_line(error)}" if error else result.evidence or f"coqc ended with {result.exit_code}"


def _one_line(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:300]


def tactics_only(script: str) -> str:
    """The script without comments, `Proof.` and `Qed.`, as it is compiled (RuleError: names a command in it).

    Every command of Coq (Axiom, Admitted, Redirect, Load, Set, ...) begins with a capital letter or an attribute `#[`;
    no tactic does. So no sentence may, and there is no list of commands to keep complete.
    """
    text = _END.sub("", _PROOF.sub("", without_comments(script, _COMMENT, _COMMENT, " "), count=1))
    for sentence in _SENTENCE_END.split(text):
        content = sentence[_BULLETS.match(sentence).end() :]  # type: ignore[union-attr]  # it also matches nothing
        if content[:1] == "#" or content[:1].isupper():
            raise RuleError(f"{content.split()[0][:40]!r} is a command; a proof holds tactics only")
    return text
