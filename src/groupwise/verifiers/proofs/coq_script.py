"""A fence before Coq: what a proof script may hold. The files that are compiled around it are the real guard.

What is returned is what is compiled: comments are taken out first, so there is no second reading of them, and texts in
quotes are looked at like everything else.
"""

import re

from groupwise.verifiers.proofs.natural_deduction import RuleError

_COMMENT = re.compile(r"\(\*|\*\)")
_PROOF = re.compile(r"\A\s*Proof(?:\s+using[^.]*)?\.(?=\s|$)")
_END = re.compile(r"(?:^|(?<=\s))(?:Qed|Defined)\.\s*$")
_SENTENCE_END = re.compile(r"\.(?=\s|$)")
_BULLETS = re.compile(r"(?:\s|[-+*{}]|[0-9]+\s*:|all\s*:)*")


def tactics_only(script: str) -> str:
    """The script without comments, `Proof.` and `Qed.`.

    Every command of Coq (Axiom, Admitted, Redirect, Load, Set, ...) begins with a capital letter or an attribute `#[`;
    no tactic does. So no sentence may, and there is no list of commands to keep complete.

    Raises:
        RuleError: names the command, or says that a comment is not closed.
    """
    text = _END.sub("", _PROOF.sub("", without_comments(script), count=1))
    for sentence in _SENTENCE_END.split(text):
        start = sentence[_BULLETS.match(sentence).end() :]  # type: ignore[union-attr]  # it matches even nothing
        if start[:1] == "#" or start[:1].isupper():
            raise RuleError(f"{start.split()[0][:40]!r} is a command; a proof holds tactics only")
    return text


def without_comments(text: str) -> str:
    """The text with each outermost comment replaced by a space.

    Raises:
        RuleError: a comment is not closed, or closed without having been opened.
    """
    kept, depth, position = [], 0, 0
    for mark in _COMMENT.finditer(text):
        if depth == 0:
            kept.append(text[position : mark.start()])
        depth += 1 if mark[0] == "(*" else -1
        if depth < 0:
            raise RuleError("'*)' stands where no comment is open")
        position = mark.end()
    if depth:
        raise RuleError("a comment is not closed")
    return " ".join([*kept, text[position:]])
