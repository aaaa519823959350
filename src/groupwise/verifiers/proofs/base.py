"""The common part of verifiers of proofs: the statement comes from the problem, only the proof from the completion."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from groupwise.config import ReadIf, Section
from groupwise.sandbox.base import Program
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import ExtractingConfig, Finding, Request, Verifier, verdict
from groupwise.verifiers.extraction import extract

MAX_LENGTH = 20_000  # most characters of a proof that are read
SEARCHED = "/usr/local/bin:/usr/bin"  # directories in which the sandbox finds the programs of proof assistants
PATIENCE = 8
"""A check may take this many times its limit by the clock, because the machine may be busy; then it is a timeout."""


class RuleError(Exception):
    """A step of a proof breaks a rule; says which."""


class ProofConfig(Section):
    """Limits of checking one proof."""

    timeout_s: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Seconds of processor time that checking one proof may take (of a Lean server: its own limit); a slower proof is
    wrong. After eight times as long by the clock the outcome is `timeout`, because then the machine is to blame."""
    memory_mb: int = Field(default=4096, ge=256)
    """Memory in MiB that checking one proof may take in the sandbox. Mathlib needs about 4096."""

    def program(self, command: tuple[str, ...], files: Mapping[str, bytes]) -> Program:
        wall_s, cpu_s = PATIENCE * self.timeout_s, math.ceil(self.timeout_s)
        return Program(command=command, files=files, wall_s=wall_s, cpu_s=cpu_s, memory_mb=self.memory_mb)


class LeanConfig(ProofConfig):
    """Settings of checking proofs with Lean."""

    lean_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    """Base address of a Lean server, for example `http://localhost:8000`; empty: the program `lean` in the sandbox."""
    lean_path: Annotated[str, ReadIf(lambda proof: not proof.lean_url, "an empty lean_url")] = Field(
        default="", pattern=r"^(/usr/[^:]*(:/usr/[^:]*)*)?$"
    )
    """Directories of compiled libraries (Mathlib) for the program `lean`, below /usr, which the sandbox shows."""


class ProofVerifier(Verifier):
    """Reads the proof where the answer is, without a code fence around it. Subclasses judge proofs.

    Most do so by `job`, what is checked of a proof (RuleError: a step breaks a rule; ValueError: there is no usable
    statement), and `judge`, which gets distinct jobs.
    """

    Config = ExtractingConfig
    one_right = True  # of an attack; a right proof is any that holds
    config: ExtractingConfig

    def job(self, header: str, statement: str, proof: str) -> Any:
        raise NotImplementedError

    def judge(self, jobs: Sequence[Any]) -> list[Finding]:
        raise NotImplementedError

    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        jobs = list[Any]()
        for problem, proof in proofs:
            statement, header = problem.data.get("statement"), problem.data.get("header", "")
            try:
                if not isinstance(statement, str) or not isinstance(header, str):
                    raise ValueError
                jobs.append(self.job(header, statement, proof))
            except RuleError as error:
                jobs.append(Finding(Outcome.WRONG, str(error), proof.strip()))
            except ValueError:
                fault = f"problem {problem.id} has no usable statement: {statement!r:.100}"
                jobs.append(Finding(Outcome.CRASHED, fault))
        distinct = list(dict.fromkeys(job for job in jobs if not isinstance(job, Finding)))
        findings = dict(zip(distinct, self.judge(distinct), strict=True))
        return [
            job if isinstance(job, Finding) else replace(findings[job], answer=findings[job].answer or proof.strip())
            for job, (_, proof) in zip(jobs, proofs, strict=True)
        ]

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        answers = [extract(request.text, self.config.extraction) for request in requests]
        proofs: list[str | Finding] = []
        for request, extraction in zip(requests, answers, strict=True):
            if extraction.answer is None:
                proofs.append(Finding(Outcome.UNPARSABLE, extraction.reason))
                continue
            # the indentation of the first line was stripped, and matters in Lean
            start = request.text.rindex(extraction.answer)
            margin = request.text[request.text.rfind("\n", 0, start) + 1 : start]
            proof = margin + extraction.answer if margin.isspace() else extraction.answer
            text = proof.strip()
            if len(text) >= 6 and text.startswith("```") and text.endswith("```"):  # a code fence around all of it
                language, _, content = text[3:-3].partition("\n")
                proof = content if language.strip().isalnum() or not language.strip() else text[3:-3]
            limit = f"the proof has {len(proof)} characters, at most {MAX_LENGTH} are read"
            proofs.append(Finding(Outcome.UNPARSABLE, limit) if len(proof) > MAX_LENGTH else proof)
        pairs = zip(requests, proofs, strict=True)
        jobs = [(request.problem, proof) for request, proof in pairs if not isinstance(proof, Finding)]
        findings = iter(self.find_many(jobs))
        return [
            verdict(proof if isinstance(proof, Finding) else next(findings), self.config, tags_right=answer.tags_right)
            for proof, answer in zip(proofs, answers, strict=True)
        ]


def without_comments(text: str, outside: re.Pattern[str], inside: re.Pattern[str], blank: str = "") -> str:
    """Replace every outermost comment (RuleError: one is not closed or opened); one that `--` begins ends its line.

    `outside` and `inside` find the marks that count there: two characters each, of which `(*` and `/-` open a comment.
    """
    pieces, depth, position = [], 0, 0
    while (mark := (inside if depth else outside).search(text, position)) is not None:
        if depth == 0:
            pieces.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == "--":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
            continue
        depth += 1 if mark[0] in ("(*", "/-") else -1
        if depth < 0:
            raise RuleError(f"{mark[0]!r} closes no comment")
    if depth:
        raise RuleError("a comment is not closed")
    return blank.join([*pieces, text[position:]])
