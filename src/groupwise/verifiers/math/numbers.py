r"""Plain numbers, exactly: integers, decimals, thousands separators, fractions, mixed numbers, powers of ten, percent.

`fractions.Fraction` throughout: no float, hence no tolerance to exploit. Two policies are explicit:

- percent: `50%` is 1/2. As the sign is often left out, it also equals the bare number when the reference carries the
  sign (`50%` against `50`) or is an integer (`50` against `50%`).
- rounding: none, except that a decimal with enough places (`verifier.decimals`, six by default) equals a fraction that
  it correctly rounds or truncates, because some fractions have no decimal form: `0.333333` and 1/3, but never
  `3.0000001` and 3; and that a reference that is a rounded decimal itself (`rounded`) is answered by what it rounds.

A comma separates thousands. It separates decimals in languages that write them so (`normalise`), and otherwise only
where one side has the very same digits with a point (`decimal_comma`).
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

MAX_CHARS = 1000  # longer numbers are left to the slow path: conversion to an integer takes quadratic time
DECIMALS = 6  # places from which on a decimal may stand for a number that has no finite decimal form

_DECIMAL = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]{0,2}(?: [0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_PLAIN = r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?) ?(?:"
    rf"(?P<whole>[0-9]+)? ?\\frac ?\{{ ?(?P<a>{_PLAIN}) ?\}} ?\{{ ?(?P<b>{_PLAIN}) ?\}}"
    rf"|(?:(?P<whole2>[0-9]+) )?(?P<c>[0-9]+(?:\.[0-9]+)?) ?/ ?(?P<d>[0-9]+(?:\.[0-9]+)?)"
    rf"|(?P<decimal>{_DECIMAL})(?: ?(?:\\times|\\cdot|\*) ?10 ?\^ ?[{{(]?(?P<exponent>[+-]?[0-9]{{1,3}})[)}}]?)?"
    rf"|10 ?\^ ?\{{?(?P<power>-?[0-9]{{1,3}})\}}?"
    rf"|(?P<head>[0-9]*\.[0-9]*) ?\\(?:overline|bar|dot)(?![a-z]) ?\{{?(?P<cycle>[0-9]{{1,40}})\}}?"
    rf") ?(?P<percent>%)?"
)
_COMMA = re.compile(r"[+-]?[0-9]{1,3}(?:[. ][0-9]{3})+,[0-9]+|[+-]?[0-9]+,[0-9]+")
_GROUPS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3})+")


@dataclass(frozen=True, slots=True)
class Number:
    """A plain number as written."""

    value: Fraction  # the number before its percent sign is applied
    percent: bool = False
    places: int | None = None  # decimal places when written as a decimal, else None

    @property
    def exact(self) -> Fraction:
        return self.value / 100 if self.percent else self.value

    def canonical(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


@lru_cache(maxsize=8192)
def parse_number(text: str) -> Number | None:
    """The number that the whole normalised answer is; None when it is anything else."""
    text = text.replace("USD ", "", 1) if text.startswith(("USD ", "-USD ")) else text
    # parentheses with a comma hold a pair: (4,112) is not a number
    while len(text) > 2 and (text[0] + text[-1] == "{}" or (text[0] + text[-1] == "()" and "," not in text)):
        if set(text[1:-1]) & set("(){}"):
            break
        text = text[1:-1].strip()
    text = text[1:-1].strip() if re.fullmatch(r"\((?:\\frac\{[0-9]+\}\{[0-9]+\})\)", text) else text
    match = _NUMBER.fullmatch(text) if len(text) <= MAX_CHARS else None
    if match is None:
        return None
    if match["power"] is not None:
        magnitude = Fraction(10) ** int(match["power"])
    elif match["cycle"] is not None:
        head, cycle = match["head"], match["cycle"]
        places = len(head.partition(".")[2])
        magnitude = _decimal(head) + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**places)
    elif match["decimal"] is not None:
        magnitude = _decimal(match["decimal"]) * Fraction(10) ** int(match["exponent"] or 0)
    else:
        whole = match["whole"] or match["whole2"]
        top, bottom = _decimal(match["a"] or match["c"]), _decimal(match["b"] or match["d"])
        # a mixed number needs a proper fraction; otherwise it is a product or a slip, which is not ours to judge
        if bottom == 0 or (whole is not None and not 0 < top < bottom):
            return None
        magnitude = int(whole or 0) + top / bottom
    value = -magnitude if match["sign"] == "-" else magnitude
    is_decimal = match["decimal"] is not None and match["exponent"] is None
    num_places = len(match["decimal"].partition(".")[2]) if is_decimal else None
    return Number(value, match["percent"] is not None, num_places)


def equal(reference: Number, answer: Number, decimals: int = DECIMALS) -> bool:
    """Compare an answer with the reference number under the policies of this module."""
    if reference.exact == answer.exact:
        return True
    if reference.percent != answer.percent and reference.value == answer.value:
        return reference.percent or reference.value.denominator == 1
    return _rounds_to(reference, answer, decimals, rounded(reference)) or _rounds_to(answer, reference, decimals)


def rounded(reference: Number) -> bool:
    """True for a decimal that data sets give for a number without finite decimal form: `30.52` for 1587/52."""
    places = reference.places or 0  # two (`41.4%`: one) and three digits or more: few wrong answers round to it
    return places > (not reference.percent) and abs(reference.value) >= max(Fraction(1), Fraction(100, 10**places))


def decimal_comma(reference: str, answer: str) -> bool:
    """True when one side is the other with a comma for the decimal point: `1000,99` and `1000.99`.

    The comma of the reference may also separate two values, so there one digit after it is not enough.
    """
    comma, point = (reference, answer) if _is_decimal_comma(reference) else (answer, reference)
    if not _is_decimal_comma(comma) or "." not in point or (comma is reference and comma[-2] == ","):
        return False
    left, right = parse_number(re.sub(r"[. ]", "", comma).replace(",", ".")), parse_number(point)
    return left is not None and right is not None and left.exact == right.exact


def equal_numbers(reference: str, answer: str, decimals: int = DECIMALS) -> bool | None:
    """The verdict on two normalised texts that are plain numbers; None where one is not."""
    left, right = parse_number(reference), parse_number(answer)
    return None if left is None or right is None else equal(left, right, decimals)


def _is_decimal_comma(text: str) -> bool:
    return len(text) <= MAX_CHARS and _COMMA.fullmatch(text) is not None and not _GROUPS.fullmatch(text)


def _rounds_to(decimal: Number, fraction: Number, decimals: int, is_given: bool = False) -> bool:
    if decimal.places is None or fraction.places is not None or fraction.percent:
        return False
    if not is_given and (decimal.places < decimals or decimal.percent):
        return False
    denominator = fraction.value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    if denominator == 1:  # it has a finite decimal form
        return False
    value = fraction.value * (100 if decimal.percent else 1)
    error = abs(value - decimal.value) * 10**decimal.places
    is_cut = decimal.places >= decimals and abs(decimal.value) < abs(value)
    return error <= Fraction(1, 2) or (error < 1 and is_cut)


def _decimal(text: str) -> Fraction:
    digits = text.replace(",", "").replace(" ", "")
    return Fraction(f"0{digits}" if digits.startswith(".") else digits.removesuffix("."))
