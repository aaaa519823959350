"""Single expressions compared without a parser: equal spellings, words, lettered choices, units, plain numbers."""

import re

from groupwise.verifiers.normalise import as_words, compact, is_words
from groupwise.verifiers.numbers import equal_numbers
from groupwise.verifiers.units import split_unit

_CHOICE = re.compile(
    r"(?:\\text ?\{ ?\((?P<a>[A-J])\) ?\}(?=[0-9\\.: ]|$)|\((?P<b>[A-J])\)(?= |$)|(?P<c>[A-J])$)[.: ]*(?P<rest>.*)"
)


def same_plainly(reference: str, answer: str) -> bool | None:
    """Whether two normalised expressions are equal; None when it takes a parser to tell."""
    if compact(reference) == compact(answer):
        return True
    if is_words(reference):
        return as_words(reference) == as_words(answer)
    chosen = _same_choice(reference, answer)
    if chosen is not None:
        return chosen
    (value, unit), (other, other_unit) = split_unit(reference), split_unit(answer)
    if unit != other_unit and ((unit and other_unit) or "%" in (value[-1:], other[-1:])):
        return False
    return True if compact(value) == compact(other) else equal_numbers(value, other)


def _same_choice(reference: str, answer: str) -> bool | None:
    r"""A lettered choice with or without what it stands for: `C`, `(C)`, `\text{(C)} 12`; None when there is none."""
    (letter, rest), (other, other_rest) = _split_choice(reference), _split_choice(answer)
    if letter and other:
        return letter == other and (not rest or not other_rest or compact(rest) == compact(other_rest))
    # one side names a letter and its value, the other side the value alone
    value, alone = (rest, answer) if letter else (other_rest, reference)
    return same_plainly(*((value, alone) if letter else (alone, value))) if value and (letter or other) else None


def _split_choice(text: str) -> tuple[str, str]:
    match = _CHOICE.fullmatch(text)
    return (match["a"] or match["b"] or match["c"], match["rest"]) if match else ("", text)
