r"""Plain numbers, exactly: integers, decimals, thousands separators, fractions, mixed numbers, powers of ten, percent.

`fractions.Fraction` throughout: no float, hence no tolerance to exploit. Two policies are explicit:

- percent: `50%` is 1/2. As the sign is often left out, it also equals the bare number when the reference carries the
  sign (`50%` against `50`) or is an integer (`50` against `50%`).
- rounding: none, except that a decimal with enough places (`verifier.decimals`, six by default) equals a fraction that
  it correctly rounds or truncates, because some fractions have no decimal form: `0.333333` and 1/3, but never
  `3.0000001` and 3; and that a reference that is a rounded decimal itself (`rounded`) is answered by what it rounds.

A comma separates thousands. It separates decimals in languages that write them so (`normalise`), and otherwise only
where one side has the very same digits with a point (`decimal_comma`).

A value without what may stand behind it: a closed grammar of units and of counted things.

A unit becomes a key: `5 \text{ cm}^2` is `5` and `cm^2`; `204_5` is `204` and `base 5`; `5^{th}` is `5` and `th`. Words
that are not listed here (`below zero`, `squared`, `less`) belong to the value, which is then compared as written.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from groupwise.verifiers.math.normalise import TABLES

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
        magnitude = _decimal(f"0{head}") + Fraction(int(cycle), (10 ** len(cycle) - 1) * 10**places)
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
    return Fraction(text.replace(",", "").replace(" ", ""))


_SYMBOLS = {word: unit for unit, words in TABLES["units"].items() for word in [unit, *words.split()]}
_THINGS = frozenset(TABLES["things"].split())
_ADJECTIVES, _FILLERS, _BEHIND = (frozenset(TABLES[name].split()) for name in ("adjectives", "fillers", "behind"))
_POWERS, ORDINALS = TABLES["powers"], TABLES["ordinals"]
_BARE = r"[ckm]m|[km]g|m[lL]|ft|yd|mi|lbs?|oz|hrs?|sec|mins?|[mk]ph|km/hr?|m/s|in\.?$|[apAP]\.? ?[mM]\.?|sq\.?"
_PREFIXED = re.compile(r"eV|[GMkdcmunp](?:eV|Hz|Pa|[JWVANCTKFgmslL]|mol|cal|bit)")
"""Units that differ from others by the case of a letter: `5 mW` is not `5 MW`."""
_TAIL = re.compile(
    r"(?<=[0-9A-Za-z})\]]) ?(?=\\text ?\{)|(?<=[0-9})\]a-z]) ?(?=\^\\circ)|(?<=[0-9]) ?(?=['\"])"
    rf"|(?<=[0-9}}]) ?(?=(?:{_BARE})(?:[^a-zA-Z]|$))|(?:(?<=[0-9)}}])|(?<=\\pi)) (?=[A-Za-z]{{3}})"
    r"|(?<=[0-9]) ?(?=[^\x00-\x7f])|(?<=[0-9]) (?=(?:eV|[GMkmun](?:eV|Hz|Pa|mol|cal|bit|[JWVA]))(?:[/^]|$))"
)
"""Places where a unit may begin."""
_TOKEN = re.compile(
    r" *(?:(?P<word>[^\W\d_]+(?:-[A-Za-z]+)?|[€£¥₹$¢])\.?|(?:\^ ?\{? ?|(?<=[a-zA-Z]))(?P<power>-?[1-3](?![0-9])) ?\}?"
    r"|(?P<per>/)|(?P<dot>\\cdot(?![a-z])|\*|-)|(?P<open>\()|(?P<close>\))|(?P<circ>\^\\circ)|(?P<prime>''|'|\"))"
)
ALIKE = [{"circ", "celsius"}, {"circ", "fahrenheit"}, {"'", "ft"}, {"'", "min"}, {"''", "in"}, {"''", "s"}]
"""Units of which one may be short for the other."""
_BASE = re.compile(
    r"(?:\\text ?\{ ?|\\overline ?\{ ?)?\(?(?P<digits>-?[0-9A-F]{1,200}(?:\.[0-9A-F]{1,200})?)[)}]? ?_ ?"
    r"(?:\{ ?(?:\\text ?\{)? ?(?:base )?\(?(?P<long>[0-9]{1,2}|[a-z]{3,8})\)? ?\}{1,2}|(?P<short>[0-9]))"
    r"|(?P<small>[0-9a-f]{2,200}) ?_ ?\{ ?(?:16|\\text ?\{ ?sixteen ?\}) ?\}"
)
_ORDINAL = re.compile(
    r"(?P<number>[0-9]{1,9}) ?\^? ?\{{0,2} ?(?:\\text ?\{ ?)?(?P<mark>st|nd|rd|th)(?: (?:place|day|term))? ?\}{0,3}",
    re.IGNORECASE,
)
_CURRENCY = re.compile(r"(?P<sign>-? ?)(?P<unit>[€£¥₹]|US|USD|Rs\.?|\\text ?\{ ?(?:Rs|USD|US)\.? ?\}) ?(?=[0-9.])")
_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")


@lru_cache(maxsize=8192)
def split_unit(text: str) -> tuple[str, str]:
    """A normalised answer without its unit, and the unit's key (empty without one)."""
    if text.isdecimal():
        return text, ""
    if match := _BASE.fullmatch(text):
        base = match["long"] or match["short"] or "16"
        return match["digits"] or match["small"].upper(), f"base {TABLES['spelled'].get(base, base)}"
    if number := ordinal(text):
        return number, "th"
    if match := _CURRENCY.match(text):
        unit = match["unit"].removeprefix("\\text").strip(" {}.").casefold()
        value, per = split_unit(text[match.end() :])
        return match["sign"].strip() + value, " ".join(sorted({_SYMBOLS.get(unit, "dollar"), *per.split()}))
    for match in _TAIL.finditer(text):
        tail = text[match.end() :]
        if tail.startswith("^") and _TRIGONOMETRY.search(text):
            break
        if (key := _unit(tail)) is not None:
            return text[: match.start()].strip(), key
    return text, ""


def split_letter(text: str, unit: str) -> tuple[str, str]:
    """The same where a bare letter behind a number stands for the unit of the other side: `5 m` beside `5 meters`."""
    letter = re.search(r"(?<=[0-9 ])[A-Za-z](?:\^[23])?$", text)
    is_unit = letter is not None and (_SYMBOLS.get(letter[0][0], "") + letter[0][1:]) == unit
    return (text[: letter.start()].strip(), unit) if letter and is_unit else (text, "")


def _unit(tail: str) -> str | None:
    """The key of a unit as written behind a value; None for anything else."""
    tail = re.sub(r"\\text ?\{([^{}]*)\}", r" \1 ", f" {tail} ")
    tail = re.sub(r"(?i)(?<![a-z])([ap])\.? ?m(?![a-z])", r"\1m", tail)
    tail = re.sub(r" (?:in total|in all) $|(?<![A-Za-z])(?:an|a) ", "", tail.replace(" per ", " / ")).strip()
    powers: dict[str, int] = {}
    sign, next_power, position, depth, last = 1, 1, 0, 0, ""
    adjectives: list[str] = []
    while position < len(tail):
        if (match := _TOKEN.match(tail, position)) is None:
            return None
        position = match.end()
        word = match["word"] or match["circ"] or match["prime"] or ""
        if match["per"]:
            sign = -1
        elif match["open"] or match["close"]:
            depth += 1 if match["open"] else -1
            sign = sign if match["open"] else 1
        elif match["power"]:
            if not last:
                return None
            powers[last] *= int(match["power"])
            last = ""
        elif word.casefold() in _POWERS:
            if not word.endswith("ed"):
                next_power = _POWERS[word.casefold()]
            elif not last:
                return None
            else:
                powers[last] *= _POWERS[word.casefold()]
        elif word in ("C", "F", "Celsius", "Fahrenheit", "celsius", "fahrenheit", "c", "f") and "circ" in powers:
            del powers["circ"]
            last = "celsius" if word.casefold()[0] == "c" else "fahrenheit"
            powers[last] = 1
        elif word.casefold() in _FILLERS or (powers and word in _BEHIND):
            continue
        elif word in _ADJECTIVES and not powers:
            adjectives.append(word)
        elif word:
            lower = word.casefold() if len(word) > 1 else word
            forms = (word, lower, lower.removesuffix("s"), lower.removesuffix("es"), f"{lower.removesuffix('ies')}y")
            known = (_SYMBOLS.get(form, form) for form in forms if form in _SYMBOLS or form in _THINGS)
            if not (name := next(known, _PREFIXED.fullmatch(word) and word)) or "circ" in powers:
                return None
            for part, direction in zip(name.split("/"), (1, -1), strict=False):
                powers[part] = powers.get(part, 0) + sign * direction * next_power
            last, next_power = name.split("/")[-1], 1
            if not depth:
                sign = 1
    if not powers or depth or next_power != 1:
        return None
    names = [name + (f"^{power}" if power != 1 else "") for name, power in sorted(powers.items())]
    key = " ".join(adjectives + names)
    return "" if key == "unit" else key


def ordinal(text: str) -> str:
    """The number of an ordinal such as `21st`; empty for anything else."""
    match = _ORDINAL.fullmatch(text)
    return match["number"] if match and match["mark"].casefold() == ordinal_mark(int(match["number"])) else ""


def ordinal_mark(number: int) -> str:
    """The letters behind an ordinal number."""
    return "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
