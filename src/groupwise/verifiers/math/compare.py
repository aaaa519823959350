r"""Two structures compared part by part; single expressions by a leaf that may not be able to tell.

Policies: lists have no order, an element written twice counts once, but the answer must have as many elements as the
reference; distinct names (`a = 2, b = 3`) give an order to a list without names; tuples have an order; `(1, 2)` equals
`1, 2` but neither `\{1, 2\}` nor `[1, 2]`; several values, or a value in braces, are never a single value; each link of
a chain `a = b = c` must equal the reference. Sets of real numbers are compared as sets, in which `or` and `and` differ;
the names of free letters do not matter (`letters.py`). A missing unit is forgiven, another unit is not.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import gcd

from groupwise.verifiers.math.letters import declared, letters_of, renamed
from groupwise.verifiers.math.normalise import TEXT, as_words, compact, is_words
from groupwise.verifiers.math.numbers import (
    ALIKE,
    DECIMALS,
    ORDINALS,
    decimal_comma,
    equal_numbers,
    ordinal,
    parse_number,
    split_letter,
    split_unit,
)
from groupwise.verifiers.math.structure import Node, names, read

Leaf = Callable[[str, str], bool | None]
"""Comparison of the reference's expression with the answer's; None: this leaf cannot tell."""

_SET = re.compile(r"[<>]|\\(?:leq|geq|neq|mathbb|setminus)(?![a-zA-Z])")
_REAL_SET = re.compile(  # a set that is written by relations, as a difference or in words
    r"[<>]|\\(?:leq|geq|neq|setminus|backslash|cap|mathbb ?\{ ?R|emptyset)(?![a-zA-Z])|\\\{[^{}]*[|:]"
    r"|\b[aA]ll (?:real|reals)\b|\b[nN]o (?:real )?solutions?\b"
)
_SET_LIKE = re.compile(
    r"(?:.{1,20}(?:\\in(?![a-z])|=) ?)?[(\[].*[)\]]|.*\\\}|.*\\(?:cup|infty)(?![a-zA-Z]).*", re.DOTALL
)
_NEAR = 50  # a number and its approximation may differ by one part in this many
_CHOICE = re.compile(
    r"(?:\\text ?\{ ?(?:\((?P<a>[A-J])\)|(?P<d>[A-J])[.:)]) ?\}(?=[0-9\\.: ]|$)|\((?P<b>[A-J])\)(?= |$)"
    r"|(?P<c>[A-J])(?:$|[.:)](?= |$)))[.: ]*(?P<rest>.*)"
)
_MOMENT = re.compile(
    r"(?P<date>[0-9]{4}-[01]?[0-9]-[0-3]?[0-9]|[0-3]?[0-9]/[0-3]?[0-9]/[0-9]{4})"
    r"|(?P<clock>[0-9]{1,2}(?::[0-5][0-9]){0,2}) ?(?:\\text ?\{ ?)?(?P<half>[aApP])\.? ?[mM]\.?(?: ?\})?"
    r"|(?P<division>[0-9]{1,9} ?R ?[0-9]{1,9})"
)
"""A date, a time of the day or a quotient with its remainder, which are no difference, quotient, ratio or product."""
_CLOCK = re.compile(r"([0-9]{1,2}):([0-5][0-9])(?![0-9:.])")
_QUANTITIES = re.compile(r"([0-9]{1,9}) ?([A-Za-z]{1,8})\.? ?,? ?(?:and )?")
_WORDY = re.compile(r"(?<!_)(?<!_\{)(?<!_ )\\text ?\{[^{}]*[A-Za-z]{2}|(?:^| )[A-Za-z]{4}")


def equivalent(
    reference: str, answer: str, same_leaf: Leaf, same_whole: Leaf | None = None, decimals: int = DECIMALS
) -> bool | None:
    """Compare a normalised answer with the reference; None when the leaves could not tell.

    `same_whole` compares what has no parts: sets of real numbers, and families with a free whole number.
    """
    if (is_equal := equal_numbers(reference, answer, decimals)) is not None:
        return is_equal
    first, second = _moment(reference), _moment(answer)
    if (first and second) or {"date", "R"} & {*first, *second}:
        return first == second
    if (time := _CLOCK.match(reference)) and gcd(*map(int, time.groups())) > 1:  # no ratio, which would be reduced
        answered = _CLOCK.match(answer)
        if answered is None or answered.groups() != time.groups():
            return False
    if decimal_comma(reference, answer) or compact(reference) == compact(answer):
        return True
    bare = [compact(TEXT.sub(r"\1", text)) for text in (reference, answer)]
    if (has_words(reference) and bare[0] == bare[1]) or _quantities(reference) == _quantities(answer) != []:
        return True
    left, right = declared(reference), declared(answer)
    if left.domains and right.domains and len({*left.domains.values(), *right.domains.values()}) > 1:
        return False  # free letters run through different sets
    answers = chain([right.core], renamed(left, right))
    is_equivalent = _some(_compare(left.core, text, same_leaf, same_whole) for text in answers)
    if is_equivalent is False and "Z" in (*left.domains.values(), *right.domains.values()):
        return bool(same_whole(reference, answer)) if same_whole else None
    return is_equivalent


def _moment(text: str) -> tuple[str | int, ...]:
    """The kind and the numbers of such a form, without zeros that change nothing; empty for anything else."""
    match = _MOMENT.fullmatch(text) if text[:1].isdecimal() else None
    if match is None:
        return ()
    numbers = [int(number) for number in re.findall("[0-9]+", match["date"] or match["clock"] or match["division"])]
    while numbers[1:] and not numbers[-1]:
        numbers.pop()
    return (match["half"].lower() if match["half"] else "R" if match["division"] else "date", *numbers)


def _quantities(text: str) -> list[tuple[str, str]]:
    """The numbers and units of a quantity of several known ones: `2 hours and 30 minutes`; empty for anything else."""
    bare = " ".join(TEXT.sub(r" \1 ", text).split())
    parts = _QUANTITIES.findall(bare) if re.fullmatch(rf"(?:{_QUANTITIES.pattern}){{2,4}}", bare) else []
    units = [(number, split_unit(rf"{number}\text{{{unit}}}")[1]) for number, unit in parts]
    return units if all(unit for _, unit in units) else []


def _compare(reference: str, answer: str, same_leaf: Leaf, same_whole: Leaf | None) -> bool | None:
    flags = [_REAL_SET.search(text) is not None for text in (reference, answer)]
    if any(flags) and (all(flags) or _SET_LIKE.fullmatch(answer if flags[0] else reference)):
        is_same = same_whole(reference, answer) if same_whole else None
        if is_same is not None or same_whole is None:
            return True if compact(reference) == compact(answer) else is_same
    left, right = read(reference), read(answer)
    if left.kind != right.kind and "list" in (left.kind, right.kind):  # `100,200,300` reads as one number
        left, right = (
            read(node.text.replace(",", ", ")) if node.kind == "expression" and node.text.count(",") > 1 else node
            for node in (left, right)
        )
    return matches(left, right, same_leaf)


def matches(reference: Node, answer: Node, same_leaf: Leaf) -> bool | None:
    """The comparison of `equivalent` for nodes."""
    if compact(reference.text) == compact(answer.text):
        return True
    kinds = (reference.kind, answer.kind)
    if "equation" in kinds:
        return _equations(reference, answer, same_leaf)
    if "union" in kinds:
        reference_parts, answer_parts = (tuple(_parts(node)) for node in (reference, answer))
        if _same_elements(reference_parts, answer_parts, same_leaf):
            return True
        return same_leaf(reference.text, answer.text)  # parts may overlap or touch, and the sets be the same
    if "list" in kinds:
        return _lists(reference, answer, same_leaf)
    if reference.kind == answer.kind and answer.kind in ("tuple", "matrix"):
        return reference.label == answer.label and _pairwise(reference, answer, same_leaf)
    if set(kinds) == {"tuple", "matrix"}:  # a column is a vector, as is a tuple in parentheses
        point, matrix = (reference, answer) if kinds[0] == "tuple" else (answer, reference)
        is_column = point.label == "()" and matrix.label == f"{len(point.items)}x1"
        return is_column and _pairwise(reference, answer, same_leaf)
    if "tuple" in kinds:
        tuple_, counterpart = (reference, answer) if reference.kind == "tuple" else (answer, reference)
        # the points of an inequality; where the reference is a pair in parentheses it may be a point of the plane
        is_interval = len(tuple_.items) == 2 and (answer is tuple_ or tuple_.label != "()" or r"\infty" in tuple_.text)
        return same_leaf(reference.text, answer.text) if is_interval and _SET.search(counterpart.text) else False
    return same_leaf(reference.text, answer.text)


def _equations(reference: Node, answer: Node, same_leaf: Leaf) -> bool | None:
    if answer.kind != "equation":
        if not reference.label and len(reference.items) > 1:
            return same_leaf(reference.text, answer.text) if answer.kind == "expression" else False
        is_same = _some(matches(link, answer, same_leaf) for link in (*reference.items, *reference.rounded))
        is_solution = is_same is False and re.search(r"^[^_]*\\[^_]*$", reference.label) and letters_of(answer.text)
        return same_leaf(reference.text, answer.text) if is_solution else is_same
    if reference.kind != "equation" or names((reference,)) & names((answer,)):
        links = reference.items if reference.kind == "equation" else (reference,)
        equals = [_some(matches(item, link, same_leaf) for item in links) for link in answer.items]
        value = parse_number(answer.items[-1].text)
        roundings = [number for node in answer.rounded if (number := parse_number(node.text))]
        is_near = value is None or all(abs(n.exact - value.exact) * _NEAR <= abs(value.exact) for n in roundings)
        return _every((is_near, *equals))
    return same_leaf(reference.text, answer.text)


def _parts(node: Node) -> Iterator[Node]:
    if node.kind in ("union", "list"):
        for item in node.items:
            yield from _parts(item)
    else:
        yield node


def _lists(reference: Node, answer: Node, same_leaf: Leaf) -> bool | None:
    if answer.kind == "tuple" or reference.kind == "tuple":
        brackets = {reference.label, answer.label}
        return brackets == {"()", ""} and _pairwise(reference, answer, same_leaf)
    if reference.kind != answer.kind and _choices(reference):
        return _choices(reference) == _choices(answer)
    if reference.kind != "list":
        return False
    if answer.kind != "list":
        return len(reference.items) == 1 and matches(reference.items[0], answer, same_leaf)
    have_names = [len(names(node.items)) > 1 for node in (reference, answer)]
    if have_names[0] != have_names[1]:
        return _pairwise(reference, answer, same_leaf)
    return _same_elements(reference.items, answer.items, same_leaf)


def _choices(node: Node) -> list[str]:
    """Letters of several lettered choices, which some write as a list, `A, C`, and some as a word, `AC`; else empty."""
    text = "".join(TEXT.sub(r"\1", part.text) for part in _parts(node))
    return sorted(text) if re.fullmatch("[A-J]{2,10}", text) else []


def _pairwise(reference: Node, answer: Node, same_leaf: Leaf) -> bool | None:
    if len(reference.items) != len(answer.items):
        return False
    return _every(matches(*pair, same_leaf) for pair in zip(reference.items, answer.items, strict=True))


def _same_elements(reference: tuple[Node, ...], answer: tuple[Node, ...], same_leaf: Leaf) -> bool | None:
    if not len(reference) <= len(answer) <= 2 * len(reference):
        return False
    table = [  # a set as an element is no element
        [(item.label == "{}") == (other.label == "{}") and matches(item, other, same_leaf) for other in answer]
        for item in reference
    ]
    return _every((*map(_some, table), *map(_some, zip(*table, strict=True))))


def _every(results: Iterable[bool | None]) -> bool | None:
    is_undecided = False
    for result in results:
        if result is False:
            return False
        is_undecided |= result is None
    return None if is_undecided else True


def _some(results: Iterable[bool | None]) -> bool | None:
    is_undecided = False
    for result in results:
        if result:
            return True
        is_undecided |= result is None
    return None if is_undecided else False


def same_plainly(reference: str, answer: str, decimals: int = DECIMALS) -> bool | None:
    """Compare two normalised expressions; None when it takes a parser to tell."""
    if compact(reference) == compact(answer):
        return True
    if reference.casefold() in ORDINALS or answer.casefold() in ORDINALS:
        places = [str(ORDINALS.get(text.casefold(), ordinal(text))) for text in (reference, answer)]
        return places[0] == places[1] != ""
    if is_words(reference):
        return as_words(reference) == as_words(answer)
    # a lettered choice with or without what it stands for: `C`, `(C)`, `\text{(C)} 12`
    (letter, content), (other_letter, other_content) = _split_choice(reference), _split_choice(answer)
    if letter and other_letter:
        is_same_content = not content or not other_content or compact(content) == compact(other_content)
        return letter == other_letter and is_same_content
    if (letter and content) or (other_letter and other_content):  # the other side is the value alone
        pair = (content, answer) if letter else (reference, other_content)
        if (is_same_value := same_plainly(*pair, decimals)) is not None:
            return is_same_value
    (value, unit), (other_value, other_unit) = split_unit(reference), split_unit(answer)
    if unit and not other_unit:
        other_value, other_unit = split_letter(other_value, unit)
    elif other_unit and not unit:
        value, unit = split_letter(value, other_unit)
    is_other = bool(unit and other_unit) and {unit, other_unit} not in ALIKE
    if unit != other_unit and (is_other or "%" in (value[-1:], other_value[-1:])):
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
