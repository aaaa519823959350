"""JSON: strictly parsed, then equal to the reference in structure, types and values.

Strict means RFC 8259 without its leeway: no repeated key, no NaN or Infinity, nothing before or after the value. An
integer field takes no 3.0 and no true; a field whose reference is a decimal number takes every spelling of that number.
"""

import json
import re
from decimal import Context, Decimal
from typing import Any, NoReturn

from groupwise.verifiers.logic.base import ReferenceVerifier, UnreadableError, shown

MAX_NESTING = 20
MAX_DIGITS = 100
_EXACT = Context(prec=MAX_DIGITS)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)', re.DOTALL)  # takes an open string too: linear on any text
_BRACKET = re.compile(r"[\[\]{}]")
_LARGE_EXPONENT = re.compile(r"[eE][-+]?0*[1-9][0-9]{3}")


class JsonVerifier(ReferenceVerifier[Any]):
    """Object members may come in any order, list items may not; white space between tokens is free."""

    def read(self, text: str) -> Any:
        _check_nesting(text)
        try:
            return json.loads(
                text,
                object_pairs_hook=_object,
                parse_constant=_refuse_constant,
                parse_float=lambda digits: Decimal(_bounded(digits)),
                parse_int=lambda digits: int(_bounded(digits)),
            )
        except json.JSONDecodeError as error:
            raise UnreadableError(f"not JSON: {error}") from None

    def difference(self, answer: Any, reference: Any) -> str:
        return _difference(answer, reference, "$")

    def canonical(self, content: Any) -> str:
        return json.dumps(content, sort_keys=True, default=lambda number: {"number": str(_EXACT.normalize(number))})


def _check_nesting(text: str) -> None:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise UnreadableError(f"nested deeper than {MAX_NESTING}")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(members)
    if len(content) != len(members):
        raise UnreadableError("a key occurs twice in one object")
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableError(f"{name} is not JSON")


def _bounded(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise UnreadableError(f"a number has {len(digits)} characters, at most {MAX_DIGITS} are read")
    if _LARGE_EXPONENT.search(digits):
        raise UnreadableError(f"the number {shown(digits)} has an exponent of more than three digits")
    return digits


def _difference(answer: Any, reference: Any, path: str) -> str:
    if isinstance(reference, Decimal) and type(answer) is int:
        answer = Decimal(answer)
    if type(answer) is not type(reference):
        return f"{path} is of type {_type(answer)}, not {_type(reference)}"
    if isinstance(reference, dict):
        return _key_difference(answer, reference, path) or _first_difference(answer, reference, sorted(reference), path)
    if isinstance(reference, list):
        if len(answer) != len(reference):
            return f"{path} has {len(answer)} items, not {len(reference)}"
        return _first_difference(answer, reference, range(len(reference)), path)
    return "" if answer == reference else f"{path} is {shown(str(answer))}, not {shown(str(reference))}"


def _key_difference(answer: dict[str, Any], reference: dict[str, Any], path: str) -> str:
    if missing_keys := sorted(reference.keys() - answer.keys()):
        return f"{path} has no {shown(missing_keys[0])}"
    if extra_keys := sorted(answer.keys() - reference.keys()):
        return f"{path} has {shown(extra_keys[0])}, which nobody asked for"
    return ""


def _first_difference(answer: Any, reference: Any, keys: Any, path: str) -> str:
    differences = (_difference(answer[key], reference[key], f"{path}.{key}") for key in keys)
    return next(filter(None, differences), "")


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", Decimal: "number"}
    return names.get(type(value), "null")
