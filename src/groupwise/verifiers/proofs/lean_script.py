"""A fence before Lean: the statement is the problem's, and the proof holds no command and no trick.

What is returned is what is compiled: comments are taken out first, so there is no second reading of them, and texts in
quotes are looked at like everything else.
"""

import re

from groupwise.verifiers.proofs.natural_deduction import RuleError

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
"""Words that are nowhere allowed: what leaves a hole, what trusts the compiler, every command, every metaprogram."""

_WORD = re.compile(r"[^\W\d]\w*")
_MARKS = re.compile(r"#[A-Za-z]{2,}|@\[|[«»`]")
_OUTSIDE, _INSIDE = re.compile(r"/-|--"), re.compile(r"/-|-/")


def complete(header: str, statement: str, proof: str) -> str:
    """The file to compile: header, statement and the proof, which may repeat them word by word.

    Raises:
        RuleError: names what the proof may not hold.
    """
    pinned = statement.rstrip()
    pinned = f"{pinned} by" if pinned.endswith(":=") else pinned
    tactics = _without_statement(header, pinned, without_comments(proof))
    for word in (*_WORD.findall(tactics), *_MARKS.findall(tactics)):
        if word in FORBIDDEN or not word.isidentifier():  # what is no identifier is one of the marks
            raise RuleError(f"{word!r} is not allowed in a proof: give the problem's statement as it is, then tactics")
    return f"{header.rstrip()}\n\n{pinned}\n{tactics.rstrip()}\n"


def _without_statement(header: str, statement: str, proof: str) -> str:
    """The proof alone, where the answer repeats the statement, or header and statement, up to white space."""
    for repeated in (f"{header} {statement}", statement, "by"):
        pattern = r"\s+".join(map(re.escape, repeated.split()))
        found = re.match(rf"\s*{pattern}(?!\w)[^\S\n]*\n?", proof)
        if found:
            return proof[found.end() :]
    return proof


def without_comments(text: str) -> str:
    """The text with its comments taken out and its lines kept.

    Raises:
        RuleError: a comment is not closed.
    """
    kept, depth, position = [], 0, 0
    while (mark := (_INSIDE if depth else _OUTSIDE).search(text, position)) is not None:
        if depth == 0:
            kept.append(text[position : mark.start()])
        position = mark.end()
        if mark[0] == "--":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        else:
            depth += 1 if mark[0] == "/-" else -1
    if depth:
        raise RuleError("a comment is not closed")
    return "".join([*kept, text[position:]])
