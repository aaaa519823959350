r"""Single expressions compared without a parser: equal spellings, words, lettered choices, units, plain numbers.

A unit at the end of an answer becomes a key: `5 \text{ cm}^2` is `5` and `cm^2`; `204_5` is `204` and `base 5`;
`5^{th}` is `5` and `th`. A missing unit is forgiven, another unit is not. Words that are not a known unit are
compared as written.
"""

import re

from groupwise.verifiers.math.normalise import as_words, compact, is_words
from groupwise.verifiers.math.numbers import DECIMALS, equal_numbers, parse_number

_CHOICE = re.compile(
    r"(?:\\text ?\{ ?(?:\((?P<a>[A-J])\)|(?P<d>[A-J])[.:)]) ?\}(?=[0-9\\.: ]|$)|\((?P<b>[A-J])\)(?= |$)"
    r"|(?P<c>[A-J])(?:$|[.:)](?= |$)))[.: ]*(?P<rest>.*)"
)
_SYNONYMS = {
    "m": "meter metre", "cm": "centimeter centimetre", "mm": "millimeter millimetre", "km": "kilometer kilometre",
    "in": "inch inches", "ft": "foot feet", "yd": "yard", "mi": "mile", "s": "sec second", "min": "minute",
    "h": "hr hour", "day": "", "week": "wk", "month": "", "year": "yr", "g": "gram gm", "kg": "kilogram",
    "mg": "milligram", "lb": "pound", "oz": "ounce", "l": "liter litre", "ml": "milliliter millilitre", "gal": "gallon",
    "dollar": "usd buck", "cent": "¢", "euro": "eur", "circ": "deg degree", "rad": "radian", "mph": "mile/h mi/h",
    "km/h": "kph kmh", "m/s": "mps", "am": "", "pm": "",
}  # fmt: skip
_CANONICAL = {word: unit for unit, words in _SYNONYMS.items() for word in [unit, *words.split()]}
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
_BARE = r"cm|mm|km|kg|mg|m[lL]|ft|yd|mi|lbs?|oz|hrs?|sec|mins?|mph|kph|km/hr?|m/s|in\.|[ap]\.?m\.?"
_UNIT = re.compile(
    r"(?:(?<=[0-9A-Za-z})\]]) ?\\text ?\{(?P<text>[^{}]*)\}"
    r"|(?<=[0-9})\]]) ?(?P<circ>\^\\circ)(?: ?\\?(?:text)? ?\{?[CF]\}?)?"
    rf"|(?<=[0-9}}]) ?(?P<bare>{_BARE})"
    r"|(?<=[0-9}]) (?P<word>[A-Za-z]{4,20}(?: [A-Za-z]{1,20}){0,3}))"
    r" ?(?P<power>\^ ?\{?[23]\}?)?$"
)
_BASE = re.compile(
    r"(?P<digits>-?[0-9A-F]{1,200}(?:\.[0-9A-F]{1,200})?) ?_ ?"
    r"(?:\{ ?(?:\\text ?\{)?(?P<long>[0-9]{1,2}|[a-z]{3,8})\}{1,2}|(?P<short>[0-9]))"
)
_ORDINAL = re.compile(
    r"(?P<number>[0-9]{1,9}) ?\^? ?\{{0,2} ?(?:\\text ?\{ ?)?(?P<mark>st|nd|rd|th)(?: (?:place|day|term))? ?\}{0,3}",
    re.IGNORECASE,
)
_ORDINAL_WORDS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9,
    "tenth": 10, "eleventh": 11, "twelfth": 12,
}  # fmt: skip
_CURRENCY = re.compile(
    r"^(?P<sign>-? ?)(?P<before>[€£¥₹]|US|USD|\\text ?\{ ?(?:Rs|USD)\.? ?\}) ?(?=[0-9.])|(?<=[0-9]) ?(?P<after>[€£¥₹])$"
)
_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_NO_UNITS = frozenset(
    ["or", "and", "not", "mod", "to", "sqrt", "sinh", "cosh", "tanh", "infinity", "if", "for", "where", "when", "more",
     "less", "than", "least", "most", "over", "under", "about"]
)  # fmt: skip


def same_plainly(reference: str, answer: str, decimals: int = DECIMALS) -> bool | None:
    """Compare two normalised expressions; None when it takes a parser to tell."""
    if compact(reference) == compact(answer):
        return True
    if reference.casefold() in _ORDINAL_WORDS or answer.casefold() in _ORDINAL_WORDS:
        ordinals = [(text, _ORDINAL_WORDS.get(text.casefold())) for text in (reference, answer)]
        spelled = [text if number is None else f"{number}{_mark(number)}" for text, number in ordinals]
        (number, _), (other_number, _) = (_split_ordinal(text) or ("", "") for text in spelled)
        return number == other_number != ""
    if is_words(reference):
        return as_words(reference) == as_words(answer)
    # a lettered choice with or without what it stands for: `C`, `(C)`, `\text{(C)} 12`
    (letter, content), (other_letter, other_content) = _split_choice(reference), _split_choice(answer)
    if letter and other_letter:
        is_same_content = not content or not other_content or compact(content) == compact(other_content)
        return letter == other_letter and is_same_content
    if (letter and content) or (other_letter and other_content):  # the other side is the value alone
        pair = (content, answer) if letter else (reference, other_content)
        is_same_value = same_plainly(*pair, decimals)
        if is_same_value is not None:
            return is_same_value
    (value, unit), (other_value, other_unit) = split_unit(reference), split_unit(answer)
    if unit != other_unit and ((unit and other_unit) or "%" in (value[-1:], other_value[-1:])):
        return False
    return True if compact(value) == compact(other_value) else equal_numbers(value, other_value, decimals)


def is_plain(text: str) -> bool:
    """True for a number, a word or a choice, perhaps with a unit: no parser is needed."""
    value, _ = split_unit(text)
    return is_words(text) or _CHOICE.fullmatch(text) is not None or parse_number(value) is not None


def _split_choice(text: str) -> tuple[str, str]:
    match = _CHOICE.fullmatch(text)
    return (match["a"] or match["b"] or match["c"] or match["d"], match["rest"]) if match else ("", text)


def split_unit(text: str) -> tuple[str, str]:
    """A normalised answer without its unit, and the unit's key (empty without one)."""
    match = _BASE.fullmatch(text)
    if match:
        return match["digits"], f"base {match['long'] or match['short']}"
    ordinal = _split_ordinal(text)
    if ordinal:
        return ordinal
    match = _CURRENCY.search(text)
    if match:
        unit = (match["before"] or match["after"]).replace("\\text", "").strip(" {}.").casefold()
        rest = text[: match.start()] + text[match.end() :]
        return (match["sign"] or "").strip() + rest.strip(), unit
    match = _UNIT.search(text)
    if match is None or (match["circ"] and _TRIGONOMETRY.search(text)):
        return text, ""
    words = (match["text"] or match["bare"] or match["word"] or ("circ" if match["circ"] else "")).casefold().strip()
    suffix = re.search(r" ?\^?([23])$", words)
    power = match["power"] or (suffix[1] if suffix else "")
    words = words[: suffix.start()] if suffix else words
    if re.search(r"[0-9\\]", words) or not words or _NO_UNITS & set(words.split()):
        return text, ""
    # one key for the spellings of a unit: `square centimeters` is `cm^2`, `miles per hour` is `mph`
    power, tokens = power.strip(" ^{}"), []
    for word in words.replace(" per ", " / ").replace(".", "").replace("/", " / ").split():
        power = _POWERS.get(word, power)
        if word not in _POWERS:
            singular = word.removesuffix("s")
            tokens.append(_CANONICAL.get(word) or _CANONICAL.get(singular) or singular)
    key = "".join(tokens) if "/" in tokens else " ".join(tokens)
    key = _CANONICAL.get(key, key)
    return text[: match.start()].strip(), "" if key == "unit" else key + (f"^{power}" if power else "")


def _split_ordinal(text: str) -> tuple[str, str] | None:
    match = _ORDINAL.fullmatch(text)
    return (match["number"], "th") if match and match["mark"].casefold() == _mark(int(match["number"])) else None


def _mark(number: int) -> str:
    return "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
