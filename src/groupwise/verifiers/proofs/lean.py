"""Proofs for Lean 4: what may be compiled, and what Lean's messages say about it.

The statement is the problem's; the proof holds no command (`complete`); Lean must report no error; and the report
of `#print axioms`, which we append, must name no axiom but the three that Mathlib rests on. A hole (`sorry`), a
compiled computation (`native_decide`) or a new axiom would be among them.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from groupwise.config import ReadIf
from groupwise.errors import VerifierError
from groupwise.sandbox.base import SandboxConfig
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import ExtractingConfig, Finding
from groupwise.verifiers.proofs.base import LeanConfig, ProofVerifier
from groupwise.verifiers.proofs.lean_backends import LeanBackend, LeanProgram, LeanServer, Message, Reply
from groupwise.verifiers.proofs.natural_deduction import RuleError

AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
FORBIDDEN = frozenset({
    "sorry", "sorryAx", "admit", "stop", "native_decide", "ofReduceBool", "reduceBool", "trustCompiler", "theorem",
    "lemma", "def", "abbrev", "axiom", "constant", "opaque", "instance", "example", "structure", "class", "inductive",
    "coinductive", "mutual", "namespace", "section", "end", "variable", "variables", "universe", "universes", "open",
    "export", "import", "include", "omit", "private", "protected", "noncomputable", "partial", "unsafe", "nonrec",
    "deriving", "derive_handler", "alias", "irreducible_def", "proof_wanted", "macro", "macro_rules", "syntax",
    "elab", "elab_rules", "notation", "notation3", "infix", "infixl", "infixr", "prefix", "postfix", "scoped",
    "local", "declare_syntax_cat", "binder_predicate", "unif_hint", "quot_precheck", "attribute", "set_option",
    "initialize", "builtin_initialize", "run_cmd", "run_elab", "run_meta", "run_tac", "by_elab", "eval_expr",
    "extern", "implemented_by", "csimp", "simproc", "simproc_decl", "add_decl_doc", "register_option", "init_quot",
    "unseal", "seal", "suppress_compilation",
})  # fmt: skip
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
    """Who checks proofs, and what checking one may take."""
    sandbox: Annotated[SandboxConfig, ReadIf(lambda config: not config.proof.lean_url, "an empty proof.lean_url")] = (
        SandboxConfig()
    )
    """Where the program `lean` runs."""
    num_workers: Annotated[int, ReadIf(lambda config: config.proof.lean_url, "proof.lean_url")] = Field(default=1, ge=1)
    """Proofs that a server is asked to check at the same time."""


class LeanVerifier(ProofVerifier):
    """Needs `problem.data["statement"]` (`theorem name ... := by`) and, where it needs imports, `["header"]`.

    Raises:
        ConfigError: there is neither an address of a server nor the program `lean`.
        VerifierError: the backend fails, or misjudges one of two theorems whose truth we know.
    """

    Config = LeanVerifierConfig
    repeatable = False  # a program is timed
    config: LeanVerifierConfig

    def __init__(self, config: LeanVerifierConfig | None = None, backend: LeanBackend | None = None) -> None:
        super().__init__(config)
        self._backend = backend or (
            LeanServer(self.config.proof, self.config.num_workers)
            if self.config.proof.lean_url
            else LeanProgram(self.config.proof, self.config.sandbox)
        )
        for truth, source in _CONTROLS.items():
            (reply,) = self._backend.compile_many([_append_report(source, "groupwise_control")])
            finding = _find(reply, "groupwise_control")
            if finding.outcome is not truth:
                self.close()
                raise VerifierError(f"Lean finds `{source}` {finding.outcome}, not {truth}: {finding.evidence}")

    def find_many(self, proofs: Sequence[tuple[Problem, str]]) -> list[Finding]:
        """One finding per problem and proof; equal files are compiled once."""
        files = [_file(problem, proof) for problem, proof in proofs]
        distinct_files = list(dict.fromkeys(file for file in files if not isinstance(file, Finding)))
        replies = self._backend.compile_many([_append_report(*file) for file in distinct_files])
        findings = {file: _find(reply, file[1]) for file, reply in zip(distinct_files, replies, strict=True)}
        return [
            file if isinstance(file, Finding) else replace(findings[file], answer=proof.strip())
            for file, (_, proof) in zip(files, proofs, strict=True)
        ]

    def close(self) -> None:
        """End what the backend started; it may be used again."""
        self._backend.close()


def _file(problem: Problem, proof: str) -> tuple[str, str] | Finding:
    """The file to compile and the theorem's name, or the finding that needs no Lean."""
    statement, header = problem.data.get("statement"), problem.data.get("header", "")
    match = _NAME.search(statement) if isinstance(statement, str) else None
    if match is None or not isinstance(statement, str) or not isinstance(header, str):
        return Finding(Outcome.CRASHED, f"problem {problem.id} has no usable statement: {statement!r:.100}")
    try:
        return complete(header, statement, proof), match[1]
    except RuleError as error:
        return Finding(Outcome.WRONG, str(error), proof.strip())


def _append_report(source: str, name: str) -> str:
    return f"{source}\n\n#print axioms {name}\n"


def _find(reply: Reply, name: str) -> Finding:
    if isinstance(reply, Finding):
        return reply
    errors = [message.text for message in reply if message.is_error]
    if errors:
        return Finding(Outcome.WRONG, f"Lean: {' '.join(errors[0].split())[:300]}")
    return _find_axioms(reply, name)


def _find_axioms(messages: Sequence[Message], name: str) -> Finding:
    """Every report on the theorem must be clean, because a tactic may print a forged one beside the real one."""
    reports = [message.text for message in messages if message.text.startswith(f"'{name}' ")]
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
    """The file to compile: header, statement and the proof, which may repeat them word for word.

    What is returned is what is compiled: comments are taken out first, so there is no second reading of them, and
    texts in quotes are treated like everything else.

    Raises:
        RuleError: names what the proof may not hold.
    """
    theorem = statement.rstrip()
    theorem = f"{theorem} by" if theorem.endswith(":=") else theorem
    tactics = _strip_statement(header, theorem, without_comments(proof))
    for word in (*_WORD.findall(tactics), *_MARKS.findall(tactics)):
        if word in FORBIDDEN or not word.isidentifier():  # what is not an identifier is one of the marks
            raise RuleError(f"{word!r} is not allowed in a proof: give the problem's statement as it is, then tactics")
    return f"{header.rstrip()}\n\n{theorem}\n{tactics.rstrip()}\n"


def _strip_statement(header: str, statement: str, proof: str) -> str:
    """The proof alone, where the answer repeats the statement, or header and statement, up to white space."""
    for prefix in (f"{header} {statement}", statement, "by"):
        pattern = r"\s+".join(map(re.escape, prefix.split()))
        match = re.match(rf"\s*{pattern}(?!\w)[^\S\n]*\n?", proof)
        if match:
            return proof[match.end() :]
    return proof


def without_comments(text: str) -> str:
    """The text without its comments, its lines kept.

    Raises:
        RuleError: a comment is not closed.
    """
    pieces, depth, position = [], 0, 0
    while (mark := (_INSIDE if depth else _OUTSIDE).search(text, position)) is not None:
        if depth == 0:
            pieces.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == "--":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        else:
            depth += 1 if mark[0] == "/-" else -1
    if depth:
        raise RuleError("a comment is not closed")
    return "".join([*pieces, text[position:]])
