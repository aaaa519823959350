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
    """Object members may stand in any order, list items may not; white space between tokens is free."""

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

    def difference(self, found: Any, wanted: Any) -> str:
        return _difference(found, wanted, "$")

    def canonical(self, content: Any) -> str:
        return json.dumps(content, sort_keys=True, default=lambda number: {"number": str(_EXACT.normalize(number))})


def _check_nesting(text: str) -> None:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise UnreadableError(f"nested deeper than {MAX_NESTING}")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise UnreadableError("a key stands twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise UnreadableError(f"{name} is not JSON")


def _bounded(digits: str) -> str:
    if len(digits) > MAX_DIGITS:
        raise UnreadableError(f"a number has {len(digits)} characters, at most {MAX_DIGITS} are read")
    if _LARGE_EXPONENT.search(digits):
        raise UnreadableError(f"the number {shown(digits)} has an exponent of more than three digits")
    return digits


def _difference(found: Any, wanted: Any, path: str) -> str:
    if isinstance(wanted, Decimal) and type(found) is int:
        found = Decimal(found)
    if type(found) is not type(wanted):
        return f"{path} is of type {_type(found)}, not {_type(wanted)}"
    if isinstance(wanted, dict):
        return _key_difference(found, wanted, path) or _first_difference(found, wanted, sorted(wanted), path)
    if isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"{path} has {len(found)} items, not {len(wanted)}"
        return _first_difference(found, wanted, range(len(wanted)), path)
    return "" if found == wanted else f"{path} is {shown(str(found))}, not {shown(str(wanted))}"


def _key_difference(found: dict[str, Any], wanted: dict[str, Any], path: str) -> str:
    if missing := sorted(wanted.keys() - found.keys()):
        return f"{path} has no {shown(missing[0])}"
    if extra := sorted(found.keys() - wanted.keys()):
        return f"{path} has {shown(extra[0])}, which nobody asked for"
    return ""


def _first_difference(found: Any, wanted: Any, places: Any, path: str) -> str:
    differences = (_difference(found[place], wanted[place], f"{path}.{place}") for place in places)
    return next(filter(None, differences), "")


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", Decimal: "number"}
    return names.get(type(value), "null")
