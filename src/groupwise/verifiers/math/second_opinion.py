r"""A second, independent checker of mathematical answers, for audits: it shares no code with the verifier.

It knows less (numbers, expressions in letters, lists, tuples and words) and says so: None means that it cannot tell.
Expressions are read by its own grammar and computed with mpmath at points that depend on the letters alone.
"""

import re
import zlib
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath  # type: ignore[import-untyped]

_LONGEST = 600
_DEEPEST = 40
_DIGITS = 120
_EQUAL, _DIFFERENT = mpmath.mpf("1e-22"), mpmath.mpf("1e-9")
_POINTS = 6
_LEAST = 3
_LARGEST_EXPONENT = 2000
_MANY_PLACES = 6
_NOISE = re.compile(r"\\(?:left|right|displaystyle|dots)(?![a-z])|\\[!,;: ]|\\\$|[$~\s]")
_SPELLINGS = {
    r"\dfrac": r"\frac", r"\tfrac": r"\frac", r"\cfrac": r"\frac", "−": "-", r"\times": "*", r"\cdot": "*",
    r"\div": "/", "×": "*", "·": "*", "π": r"\pi", r"\{": "<", r"\}": ">", r"\%": "%", "{,}": ",",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_FRACTION = re.compile(r"([+-]?)(?:([0-9]+)/([0-9]+)|\\frac\{([0-9]+)\}\{([0-9]+)\})")
_DOUBTFUL = re.compile(r"[0-9.][eE][+-]?[0-9]|(?<![\\A-Za-z])[A-Za-z]{3,}|_|^\(\(.*\)\)$|[0-9],[0-9]{3}(?![0-9])")
"""Words in an expression, indices, brackets in brackets, and commas that may group digits."""
_COMMA = re.compile(r"[0-9]+,[0-9]+")
_NAMED = re.compile(r"([A-Za-z](?:\([a-z]\))?)=(?=[^=])(.*)")
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|\\[A-Za-z]+|[A-Za-z]|[-+*/^!(){}|\[\]]")
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    r"\sin": mpmath.sin, r"\cos": mpmath.cos, r"\tan": mpmath.tan, r"\cot": mpmath.cot, r"\sec": mpmath.sec,
    r"\csc": mpmath.csc, r"\ln": mpmath.log, r"\arcsin": mpmath.asin, r"\arccos": mpmath.acos, r"\arctan": mpmath.atan,
}  # fmt: skip


class _UnknownError(Exception):
    """The text is not of this grammar, or cannot be computed here."""


def second_opinion(reference: str, answer: str) -> bool | None:
    """Compare an answer with the reference; None: this checker cannot tell."""
    if max(len(reference), len(answer)) > _LONGEST:
        return None
    left, right = _clean(reference), _clean(answer)
    if not left or not right:
        return None
    return True if left == right else _compare(left, right)


def _clean(text: str) -> str:
    text = re.sub(r"(?<=[0-9])(?:,\s*\\!|\{,\})\s*(?=[0-9]{3})", "", text)
    words = re.fullmatch(r"\s*\\text\s*\{([^{}]*)\}\s*", text)
    text = _NOISE.sub("", words[1] if words else text)
    for spelling, replacement in _SPELLINGS.items():
        text = text.replace(spelling, replacement)
    text = re.sub(r"\\frac([0-9])([0-9])", r"\\frac{\1}{\2}", text)
    return text.removesuffix(".").removeprefix(r"\(").removesuffix(r"\)")


def _compare(left: str, right: str) -> bool | None:
    numbers = [_fraction(text) for text in (left, right)]
    if numbers[0] is not None and numbers[1] is not None:
        places = [len(text.partition(".")[2]) for text in (left, right)]
        if max(places) >= _MANY_PLACES and min(places) == 0 and re.search(r"/|\\frac", left + right):
            return None  # for a quotient and a decimal of many places it is a policy whether a rounding counts as equal
        if places[0] and re.search(r"/|\\frac", right):
            return None if abs(numbers[0] - numbers[1]) * 10 ** places[0] < 1 else False
        return numbers[0] == numbers[1]
    if all(re.fullmatch(r"[A-Za-z]{3,}", text) for text in (left, right)):
        return left.casefold() == right.casefold()
    if any(_DOUBTFUL.search(text) for text in (left, right)):
        return None
    if any(_COMMA.fullmatch(comma) and "." in point for comma, point in ((left, right), (right, left))):
        return None  # the comma may stand for the decimal point of the other side
    named = [(_NAMED.fullmatch(text), text) for text in (left, right)]
    names, values = zip(*((match[1], match[2]) if match else ("", text) for match, text in named), strict=True)
    if any(re.search(r"[=<>;%_&:]|\\(?:in|le|ge|cup|pm|text|infty|circ)", text) for text in values):
        return None
    if len({*names} - {""}) > 1:
        return None
    parts = []
    for text in values:  # the elements of a list, or of one pair of brackets around it
        brackets = re.fullmatch(r"[(\[](.*)[)\]]", text)
        content = brackets[1] if brackets and _top_commas(brackets[1]) else text
        parts.append([content[a + 1 : b] for a, b in pairwise([-1, *_top_commas(content), len(content)])])
    if any(len(part) > 1 for part in parts):
        around = [text[0] + text[-1] if text[0] in "([" and text[-1] in ")]" else "" for text in values]
        if around[0] != around[1] or any(not part for elements in parts for part in elements):
            return None
        if len(parts[0]) != len(parts[1]):
            return False if len(set(parts[0])) == len(parts[0]) > len(parts[1]) else None
        if around[0] in ("()", "[]", "(]", "[)") and not any("(" in part for part in parts[0]):
            results = [_compare(a, b) if a != b else True for a, b in zip(*parts, strict=True)]
            return False if False in results else None if None in results else True
        table = [[True if a == b else _compare(a, b) for b in parts[1]] for a in parts[0]]
        if all(any(row) for row in table) and all(any(column) for column in zip(*table, strict=True)):
            return True
        return None if any(None in row for row in table) else False
    num_agreed = 0
    with mpmath.workdps(_DIGITS):
        for point in range(_POINTS):
            try:
                a, b = (_Reader(text, point).value() for text in values)
            except (_UnknownError, RecursionError):
                return None
            except (ArithmeticError, ValueError, TypeError):
                continue  # outside the domain
            scale = max(abs(a), abs(b))
            error = abs(a - b) / scale if scale else mpmath.mpf(0)
            if not error <= _EQUAL:
                return False if error > _DIFFERENT else None
            num_agreed += 1
    return True if num_agreed >= _LEAST else None


def _fraction(text: str) -> Fraction | None:
    if quotient := _FRACTION.fullmatch(text):
        top, bottom = quotient[2] or quotient[4], quotient[3] or quotient[5]
        return Fraction(int(quotient[1] + top), int(bottom)) if int(bottom) else None
    is_number = _NUMBER.fullmatch(text) and any(char.isdigit() for char in text)
    return Fraction(text.replace(",", "")) if is_number else None


def _top_commas(text: str) -> list[int]:
    depth, indices = 0, []
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return []
        if char == "," and depth == 0:
            indices.append(index)
    return indices


class _Reader:
    """Computes an expression at one point while reading it."""

    def __init__(self, text: str, point: int) -> None:
        self._tokens = _TOKEN.findall(text)
        if "".join(self._tokens) != text:
            raise _UnknownError
        self._point, self._depth = point, 0

    def value(self) -> Any:
        value = self._sum()
        if self._tokens:
            raise _UnknownError
        return value

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self, expected: str = "") -> str:
        if not self._tokens or (expected and self._tokens[0] != expected):
            raise _UnknownError
        return str(self._tokens.pop(0))

    def _sum(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _UnknownError
        total = self._product() if self._peek() not in ("+", "-") else mpmath.mpf(0)
        while self._peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            total += sign * self._product()
        self._depth -= 1
        return total

    def _product(self) -> Any:
        result = self._power()
        while (token := self._peek()) and token not in ("+", "-", ")", "}", "|", "]"):
            if token in ("*", "/"):
                self._take()
                factor = self._power()
                result = result * factor if token == "*" else result / factor
            else:
                result *= self._power()
        return result

    def _power(self) -> Any:
        if self._peek() == "-":  # not behind a factor, where it is a difference
            self._take()
            return -self._power()
        is_whole = self._peek().isdigit()
        base = self._base()
        if is_whole and self._tokens[:1] == [r"\frac"]:
            tokens = self._tokens[1:7]
            if [tokens[i : i + 1] for i in (0, 2, 3, 5)] != [["{"], ["}"], ["{"], ["}"]]:
                raise _UnknownError
            if not (tokens[1].isdigit() and tokens[4].isdigit() and 0 < int(tokens[1]) < int(tokens[4])):
                raise _UnknownError
            return base + self._base()
        while self._peek() in ("^", "!"):
            if self._take() == "^":
                exponent = self._argument()
                if abs(exponent) > _LARGEST_EXPONENT:
                    raise _UnknownError
                is_integer = mpmath.isint(exponent)
                if not is_integer and (mpmath.im(base) or base < 0):
                    raise ValueError
                base = base ** (int(exponent) if is_integer else exponent)
            elif mpmath.isint(base) and 0 <= base <= _LARGEST_EXPONENT:
                base = mpmath.factorial(base)
            else:
                raise _UnknownError
        return base

    def _base(self) -> Any:
        token = self._take()
        if token[0].isdigit() or token[0] == ".":
            return mpmath.mpf(token)
        if token in ("(", "{", "|"):
            value = self._sum()
            self._take({"(": ")", "{": "}", "|": "|"}[token])
            return abs(value) if token == "|" else value
        return self._command(token) if token[0] == "\\" else self._letter(token)

    def _command(self, token: str) -> Any:
        if token == r"\frac":
            return self._argument() / self._argument()
        if token == r"\sqrt":
            degree = mpmath.mpf(2)
            if self._peek() == "[":
                self._take()
                degree = self._sum()
                self._take("]")
            radicand = self._argument()
            if mpmath.im(radicand) or radicand < 0:
                raise ValueError
            return mpmath.root(radicand, int(degree))
        if token == r"\pi":
            return +mpmath.pi
        is_last = len(self._tokens) == 1 and re.fullmatch(r"[0-9]+|[a-z]|\\pi", self._peek())
        if token in _FUNCTIONS and (self._peek() in ("(", "{") or is_last):
            return _FUNCTIONS[token](self._base())
        if not re.fullmatch(r"\\(?:alpha|beta|gamma|theta|lambda|mu|phi)", token):
            raise _UnknownError
        return self._letter(token)

    def _argument(self) -> Any:
        token = self._peek()
        if token[:1].isdigit() and len(token) > 1 and token.isdigit():
            raise _UnknownError  # `x^12` and `\frac1234` mean different things to different readers
        return self._base()

    def _letter(self, name: str) -> Any:
        if name == "e":
            return +mpmath.e
        if name == "i":
            return mpmath.mpc(0, 1)
        chance = zlib.adler32(f"{self._point}/{name}/second".encode()) * 2654435761 % 2**32
        sign = -1 if self._point == 4 and chance % 2 else 1
        return sign * (mpmath.mpf(chance) / 2**32 * 3 + mpmath.mpf(1) / 3)
