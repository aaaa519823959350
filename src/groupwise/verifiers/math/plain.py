r"""Single expressions compared without a parser: equal spellings, words, lettered choices, units, plain numbers.

A missing unit is forgiven, another unit is not. Words that are not a known unit are compared as written.
"""

import re

from groupwise.verifiers.math.normalise import as_words, compact, is_words
from groupwise.verifiers.math.numbers import DECIMALS, equal_numbers, parse_number
from groupwise.verifiers.math.units import ORDINALS, ordinal, ordinal_mark, same_units, split_letter, split_unit

_CHOICE = re.compile(
    r"(?:\\text ?\{ ?(?:\((?P<a>[A-J])\)|(?P<d>[A-J])[.:)]) ?\}(?=[0-9\\.: ]|$)|\((?P<b>[A-J])\)(?= |$)"
    r"|(?P<c>[A-J])(?:$|[.:)](?= |$)))[.: ]*(?P<rest>.*)"
)
_WORDY = re.compile(r"(?<!_)(?<!_\{)(?<!_ )\\text ?\{[^{}]*[A-Za-z]{2}|(?:^| )[A-Za-z]{4}")


def same_plainly(reference: str, answer: str, decimals: int = DECIMALS) -> bool | None:
    """Compare two normalised expressions; None when it takes a parser to tell."""
    if compact(reference) == compact(answer):
        return True
    if reference.casefold() in ORDINALS or answer.casefold() in ORDINALS:
        numbers = [ORDINALS.get(text.casefold()) for text in (reference, answer)]
        spelled = zip((reference, answer), numbers, strict=True)
        number, other_number = (text if n is None else f"{n}{ordinal_mark(n)}" for text, n in spelled)
        return ordinal(number) == ordinal(other_number) != ""
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
    if unit and not other_unit:
        other_value, other_unit = split_letter(other_value, unit)
    elif other_unit and not unit:
        value, unit = split_letter(value, other_unit)
    if not same_units(unit, other_unit) or (unit != other_unit and "%" in (value[-1:], other_value[-1:])):
        return False
    if compact(value) == compact(other_value):
        return True
    return equal_numbers(value, other_value, decimals)


def has_words(expression: str) -> bool:
    """True where an expression without its unit holds words: it is compared as written."""
    return _WORDY.search(expression) is not None


def is_plain(text: str) -> bool:
    """True for a number, a word or a choice, perhaps with a unit: no parser is needed."""
    value, _ = split_unit(text)
    return is_words(text) or _CHOICE.fullmatch(text) is not None or parse_number(value) is not None


def _split_choice(text: str) -> tuple[str, str]:
    match = _CHOICE.fullmatch(text)
    return (match["a"] or match["b"] or match["c"] or match["d"], match["rest"]) if match else ("", text)
