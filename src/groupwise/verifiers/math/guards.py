r"""Answers refused before any parser sees them: too long, too deep, too large, or read wrongly by LaTeX parsers.

The size of an answer is estimated on its text, without computing it: a policy must not dodge its penalty by an answer
such as `9^{9^{9^9}}` that runs the verifier into its deadline, for a deadline says nothing about the answer.
"""

import math
import re
import unicodedata
from typing import NamedTuple

from groupwise.verifiers.math.normalise import TEXT, outer

MAX_LENGTH = 10_000
MAX_NESTING = 50
MAX_LINKS = 20
MAX_SIZE = 20_000.0  # decimal digits that the parts of an answer may have together when computed

MAX_TOKENS = 250  # tokens of an answer that goes to a parser: where a reference is longer, twice as many as it has
MAX_BARS = 10  # bars of absolute values, whose pairing takes a parser exponential time

_LINKS = re.compile(r"=|<|>|\\(?:leq?|geq?|approx|equiv|neq?|in)(?![a-zA-Z])")
_OPEN, _CLOSE = frozenset(["{", "[", "(", r"\{"]), frozenset(["}", "]", ")", r"\}"])
_BRACKET = re.compile(r"[()\[\]{}]")
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\\[a-zA-Z]+|\\.|\S", re.DOTALL)
_TALL = frozenset([r"\exp", r"\sinh", r"\cosh", r"\Gamma"])
_MARKS, _SIGNS, _BETWEEN_TERMS = frozenset("^!_"), frozenset("+-"), frozenset("+-,;=<>&")
_MAX_DEPTH = 200
_BEYOND = 1e9
EAGER = re.compile(
    r"\\(?:int|iint|oint|sum|prod|lim|det|gcd|lcm|bigcup|bigcap|frac ?\{ ?d ?\} ?\{ ?d|xrightarrow)(?![a-z])"
    r"|\\begin ?\{vmatrix\}|\\text ?\{ ?(?:lcm|gcd|det|rank|tr|zeros|ones|diag|eye) ?\}"
)


def refusal(text: str) -> str | None:
    """Return why an answer is not even read: too long, too deep, too many links, invisible characters; or None."""
    if len(text) > MAX_LENGTH:
        return f"the answer has {len(text)} characters, at most {MAX_LENGTH} are read"
    is_plain = text.isascii() and text.isprintable()
    if not is_plain and any(
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co") and char not in "\n\t\r" for char in text
    ):
        return "the answer holds control or invisible characters"
    depth = deepest = 0
    for char in _BRACKET.findall(text):
        depth += 1 if char in _OPEN else -1
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        return f"the answer is nested deeper than {MAX_NESTING}"
    if len(_LINKS.findall(text)) > MAX_LINKS:
        return f"the answer chains more than {MAX_LINKS} relations"
    return None


def unreadable(text: str) -> str | None:
    """Return why a normalised answer must not be parsed: it would be read wrongly, or never end; or None."""
    if re.search(r"(?<!\\log_)[0-9] [0-9]", text):
        return "two numbers are side by side without an operator"
    if re.search(r"(?<![0-9A-Za-z.\\])0(?:x[0-9a-fA-F]|b[01])", text):
        return "a number of another base looks like a product"
    if re.search(r"%[ ]?[^ ,;)\]}]", text):
        return "a percent sign is in the middle"
    if any(re.search(r"[0-9]|\bnot\b|\bor\b.*\d", content) for content in TEXT.findall(text)):
        return "words in the answer hold a number or a negation"
    if text.count("|") > MAX_BARS:
        return f"more than {MAX_BARS} bars can be paired in too many ways"
    if r"\mp" in text:
        return "a sign depends on another one"
    if re.search(r"\[ ?-? ?\\infty|\\infty ?\]", text):
        return "an interval is closed at infinity"
    if size(text) > MAX_SIZE:
        return f"the answer is too large: more than {MAX_SIZE:g} digits when computed"
    return None


def too_long(reference: str, answer: str) -> str | None:
    """Return why an answer would keep a parser busy: its tokens, which cost it about a millisecond each; or None."""
    limit = max(MAX_TOKENS, 2 * len(_TOKEN.findall(reference)))
    return f"the answer has more than {limit} symbols" if len(_TOKEN.findall(answer)) > limit else None


def restates(reference: str, answer: str) -> bool:
    """True for an answer that leaves a sum, limit, ... to compute (not on its left) where the reference has none."""
    link = _LINKS.search(outer(answer)) if EAGER.match(answer) and "=" not in outer(reference) else None
    start = link.end() if link and link[0] == "=" else 0
    return EAGER.search(answer, start) is not None and EAGER.search(reference) is None


def size(text: str) -> float:
    """About how many decimal digits the numbers of an expression have when computed (a letter: one); else infinity."""
    try:
        return _Sizes(_TOKEN.findall(text)).group().digits
    except OverflowError:
        return math.inf


class _Size(NamedTuple):
    """Upper bounds."""

    digits: float
    value: float  # log10 of the absolute value


class _Sizes:
    """Reads tokens from left to right; raises OverflowError at once when a part is beyond any bound."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = self._depth = 0

    def group(self) -> _Size:
        digits, terms = 0.0, [0.0]
        while (token := self._take()) and token not in _CLOSE:
            if token in _BETWEEN_TERMS:
                terms.append(0.0)
            else:
                item = self._item(token)
                digits, terms[-1] = digits + item.digits, terms[-1] + item.value
        return _Size(digits, max(terms) + math.log10(len(terms)))

    def _item(self, token: str) -> _Size:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise OverflowError
        item = self._atom(token)
        while self._peek() in _MARKS:
            mark = self._take()
            if mark == "!":
                item = _factorial(item)
            elif mark == "^":
                exponent = self._argument()
                digits = max(item.digits, 0.3) * 10.0**exponent.value
                item = _bounded(digits + exponent.digits, digits)
            else:  # a subscript; that of a group may be read as a falling factorial
                self._argument()
                item = _factorial(item) if token in _OPEN else item
        self._depth -= 1
        return item

    def _atom(self, token: str) -> _Size:
        if token in _OPEN:
            return self.group()
        if token[0].isdecimal():
            mantissa, _, exponent_text = token.lower().partition("e")
            integer, _, places = mantissa.partition(".")
            exponent = 10.0 ** min(len(exponent_text), 12) if exponent_text else 0.0
            value = math.log10(int(integer) + 1) if len(integer) < 300 else float(len(integer))
            return _bounded(value + len(places) + exponent, value + exponent)
        if token == r"\frac":
            top, is_integer, bottom = self._argument(), self._is_integer(), self._argument()
            # the reciprocal of an integer is at most 1; that of anything else is bounded by its digits alone
            return _Size(top.digits + bottom.digits, top.value + (0.0 if is_integer else bottom.digits))
        if token == r"\binom":
            is_integer, top, bottom = self._is_integer(), self._argument(), self._argument()
            if not is_integer:
                return _bounded(100.0**bottom.value)
            return _bounded(10.0 ** min(top.value, bottom.value) * max(top.value, 1.0))
        if token in _TALL:
            return _bounded(10.0 ** self._argument().value)
        return _COMMAND if token[0] == "\\" else _LETTER

    def _argument(self) -> _Size:
        token = self._take()
        while token in _SIGNS:
            token = self._take()
        return self._item(token) if token else _Size(0.0, 0.0)

    def _is_integer(self) -> bool:
        tokens = self._tokens[self._position : self._position + 3]
        return len(tokens) == 3 and tokens[0] == "{" and tokens[1].isdecimal() and tokens[2] == "}"

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._position += 1
        return token


def _factorial(item: _Size) -> _Size:
    return _bounded(10.0**item.value * max(item.value, 1.0))


def _bounded(digits: float, value: float | None = None) -> _Size:
    if digits > _BEYOND:
        raise OverflowError
    return _Size(digits, digits if value is None else value)


_LETTER, _COMMAND = _Size(1.0, 0.7), _Size(0.3, 0.0)
