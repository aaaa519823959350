r"""Letters of a normalised answer: which it uses, which it declares as free, and answers with renamed free letters.

The name of a free letter says nothing: `f(n) = 2n` is `f(x) = 2x`, and `k\pi` is `n\pi` for whole numbers. A letter is
free where the answer says so (`k \in \mathbb{Z}`, `\text{for all } x`, `where c is a constant`), where it is the
argument of the function or the index of the sequence that an equation defines, or where a letter that is used for whole
numbers is beside `\pi`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

MAX_RENAMED = 2  # letters renamed at once
_LONGEST = 160  # characters at the end of an answer that may declare letters

_TOKEN = re.compile(r"\\text ?\{[^{}]*\}|\\mathbb ?\{[^{}]*\}|\\[a-zA-Z]+|_(?:[A-Za-z0-9]|\{[^{}]*\})|[a-zA-Z]")
LETTER = r"(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|rho|sigma|tau|phi|omega|ell|epsilon))"
_NO_VARIABLES = frozenset(["e", "i"])
_VARIABLE = r"(?:[a-zA-Z]|\\(?:ell|alpha|beta|lambda|mu|theta))"
_DOMAIN = r"\\mathbb ?\{ ?[RZNQC] ?\}(?: ?(?:\^|_) ?(?:[+*]|\{[^{}]{1,8}\}))*"
_KIND = (
    r"(?:positive |negative |non-?negative |arbitrary |fixed |any |real |rational |whole )*"
    r"(?:integers?|constants?|numbers?|reals?)"
)
_DECLARATION = re.compile(
    rf"[ ,;.]*(?P<open>\()? ?(?:,? ?(?P<lead>where|for|with|here|\\forall)[ ,]+)?"
    rf"(?:(?P<every>all|any|every|each|some|arbitrary|an?) )*(?P<kind>{_KIND} )?"
    rf"(?P<letters>{_VARIABLE}(?: ?, ?{_VARIABLE}){{0,3}})"
    rf"(?: ?\\in ?(?P<domain>{_DOMAIN})| (?:is|are) (?:an? )?(?P<noun>{_KIND}))?(?P<close> ?\))?[ .]*"
)
_HINT = re.compile(r"\\in(?![a-z])|\\forall|\b(?:for|where|is|are|with)\b")
_FULL = {"real": "R", "reals": "R", "real number": "R", "real numbers": "R", "integer": "Z", "integers": "Z"}
_INDEX = frozenset("klmn")
_RELATION = re.compile(r"[<>]|\\(?:leq|geq|neq)(?![a-zA-Z])")
_BOUND = re.compile(rf"{_VARIABLE} ?(?:\( ?(?P<argument>{_VARIABLE}) ?\)|_ ?\{{? ?(?P<index>[a-z]) ?\}}?) ?=")


class Declared(NamedTuple):
    """An answer and what it declares."""

    core: str  # the answer without its declarations
    domains: dict[str, str]  # the set of each declared letter: `R`, `Z`, another one as it is written, or empty


def letters_of(text: str, subscripts: bool = False) -> set[str]:
    """The letters that stand for something unknown; with subscripts, `x_1` and `x_2` are two of them."""
    letters: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[0] == "_":
            if letters and subscripts:
                letters[-1] += token
        elif re.fullmatch(LETTER, token) and token not in _NO_VARIABLES:
            letters.append(token)
    return set(letters)


@lru_cache(maxsize=2048)
def declared(text: str) -> Declared:
    """Split what an answer declares at its end from the answer."""
    domains: dict[str, str] = {}
    core = text
    for _ in range(MAX_RENAMED if _HINT.search(text) else 0):
        if (match := _last_declaration(core)) is None:
            break
        remainder, letters, domain = match
        if domain not in ("", "R") and _RELATION.search(remainder):
            break  # x > 3 for whole numbers is another set than x > 3
        core = remainder
        domains |= dict.fromkeys(letters, domain)
    return Declared(core, domains)


def _last_declaration(text: str) -> tuple[str, list[str], str] | None:
    start = max(0, len(text) - _LONGEST)
    tail = re.sub(r"\\text ?\{([^{}]*)\}", lambda match: match[1].rjust(len(match[0]), "\0"), text[start:])
    for separator in re.finditer(r"[,;]|\(|\0+|\\forall(?![a-z])| (?:where|for|with) ", tail):
        offset = separator.start()
        clause = " ".join(tail[offset:].replace("\0", " ").split())
        match = _DECLARATION.fullmatch(clause)
        if match is None or (match["open"] is None) != (match["close"] is None):
            continue
        if not (match["lead"] or match["domain"] or match["noun"]):
            continue
        remainder = text[: start + offset].rstrip(" ,;")
        letters = re.findall(_VARIABLE, match["letters"])
        if remainder and set(letters) & letters_of(remainder):
            noun = match["noun"] or match["kind"] or ""
            domain = match["domain"] or _FULL.get(noun.strip(), noun.strip())
            return remainder, letters, re.sub(r"\\mathbb ?\{ ?(\w) ?\}", r"\1", domain).replace(" ", "")
    return None


def renamed(reference: Declared, answer: Declared) -> Iterator[str]:
    """The answer with its own free letters renamed to those that only the reference has, in every possible way."""
    answer_letters, reference_letters = _own_letters(answer, reference), _own_letters(reference, answer)
    if not answer_letters or len(answer_letters) != len(reference_letters) or len(answer_letters) > MAX_RENAMED:
        return
    declares = set(answer_letters) <= answer.domains.keys() or set(reference_letters) <= reference.domains.keys()
    if not declares and not (_are_bound(answer_letters, answer.core) and _are_bound(reference_letters, reference.core)):
        return
    for names in permutations(reference_letters):
        yield _rename(answer.core, dict(zip(answer_letters, names, strict=True)))


def _own_letters(text: Declared, counterpart: Declared) -> list[str]:
    # without the names that it gives: of `(k, \ell) = (2t, 3t)` the right side, of `f(x) = 2x` all
    _, equals, value = text.core.partition("=")
    values = value if equals and not _BOUND.match(text.core) and letters_of(value) else text.core
    return sorted(letters_of(values) - letters_of(counterpart.core))


def _are_bound(letters: list[str], text: str) -> bool:
    bound = {name for match in _BOUND.finditer(text) for name in match.groups() if name}
    if r"\pi" in text or re.match(rf"{_VARIABLE} ?=", text):
        bound |= _INDEX
    return set(letters) <= bound


def _rename(text: str, names: dict[str, str]) -> str:
    def rename(match: re.Match[str]) -> str:
        token = match[0]
        if token[0] != "_":
            return names.get(token, token)
        return re.sub(r"(?<![A-Za-z])[a-z](?![A-Za-z])", lambda letter: names.get(letter[0], letter[0]), token)

    return _TOKEN.sub(rename, text)
