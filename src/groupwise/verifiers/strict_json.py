"""JSON, judged strictly: equal to the reference in structure, types and values, in time linear in the text.

The answer is the one box, or else the one fenced block, or else all that follows the reasoning. Strict means RFC 8259
without its leeway: no repeated key, no NaN or Infinity, nothing before or after the value. An integer field takes no
3.0 and no true; a field whose reference is a decimal number takes every spelling of that number.
`problem.data["schema"]`, where there is one, is a JSON schema (of the draft that it names, else 2020-12) that the value
must fit.
"""

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding
from groupwise.verifiers.exact import PartlyRight, UnreadableError, shown
from groupwise.verifiers.extraction import Extracted, after_thinking, boxes, thought_once

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_NESTING = 20
MAX_DIGITS = 100
_EXACT = Context(prec=MAX_DIGITS)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)', re.DOTALL)  # takes an open string too: linear on any text
_BRACKET = re.compile(r"[\[\]{}]")
_LARGE_EXPONENT = re.compile(r"[eE][-+]?0*[1-9][0-9]{3}")
_FENCED = re.compile(r"^[ \t]*```(?:json)?[ \t\r]*\n(.*?)^[ \t]*```[ \t\r]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)


class JsonVerifier(PartlyRight):
    """Object members may come in any order, list items may not; white space between tokens is free.

    It needs no box: bare JSON and one fenced block are answers, too. Its measures, each 0 to 1: `parses`, `valid` and
    `values`. A value is right under its path in reference and answer; one that only one of the two has counts as wrong.
    """

    def extract(self, text: str) -> Extracted:
        extraction = super().extract(text)
        region = after_thinking(text)
        if extraction.answer is not None or region is None or self.config.extraction != "boxed" or boxes(region):
            return extraction
        blocks = _FENCED.findall(region) if "```" in region else [region]
        if len(blocks) != 1:
            return Extracted(None, f"{len(blocks)} fenced blocks" if blocks else "no closed fenced block", False)
        answer = blocks[0].strip()
        return Extracted(answer, "", thought_once(text)) if answer else Extracted(None, "no answer", False)

    def measures(self, problem: Problem, reached: Mapping[str, float]) -> Mapping[str, float]:
        names = ("parses", "valid", "values") if _schema_of(problem) else ("parses", "values")
        return {name: reached.get(name, 0.0) for name in names}

    def find(self, problem: Problem, answer: str) -> Finding:
        schema = _schema_of(problem)
        try:
            reference, right, fits = _read_reference(problem.reference, schema)
        except UnreadableError as error:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} is unreadable: {error}")
        content = _read(answer)
        fault = _difference(content, reference, "$")
        values = _leaves(content) if fault else right
        equal = sum(path in values and not _difference(values[path], right[path], "$") for path in right)
        measures = {"parses": 1.0, "values": equal / len(values.keys() | right.keys())}
        misfit = _misfit(content, schema) if schema and (fault or not fits) else ""
        if misfit and not fault:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} does not fit its schema")
        if schema and not misfit:
            measures["valid"] = 1.0
        evidence = fault or "it equals the reference answer"
        evidence = f"it does not fit the schema: {misfit}; {evidence}" if misfit else evidence
        return Finding(Outcome.WRONG if fault else Outcome.CORRECT, evidence, _CANONICAL.encode(content), measures)


def _schema_of(problem: Problem) -> str:
    """Return the schema as text; empty where there is none, which a table writes as null or as empty text."""
    schema = problem.data.get("schema", "")
    return "" if schema is None else schema if isinstance(schema, str) else json.dumps(schema)


@lru_cache(maxsize=1024)  # the completions of a group have one reference and one schema
def _read_reference(text: str, schema: str) -> tuple[Any, dict[tuple[str | int, ...], Any], bool]:
    content = _read(text)
    return content, _leaves(content), not schema or not _misfit(content, schema)


def _misfit(content: Any, schema: str) -> str:
    """Describe the first thing in a value that does not fit a schema; empty when all does."""
    fault = next(_validator(schema).iter_errors(content), None)
    return f"{fault.json_path}: {shown(fault.message)}" if fault else ""


@lru_cache(maxsize=1024)
def _validator(schema: str) -> "Validator":
    from jsonschema import Draft202012Validator, validators  # takes as long to load as all the rest of this module
    from referencing import Registry

    content = json.loads(schema, parse_float=Decimal)
    draft = validators.validator_for(content, default=Draft202012Validator)
    draft.check_schema(content)
    return draft(content, registry=Registry())  # which fetches nothing from the network


def _read(text: str) -> Any:
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise UnreadableError(f"nested deeper than {MAX_NESTING}")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise UnreadableError(f"not JSON: {error}") from None


def _leaves(content: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    """The values of a JSON value that hold no other, by their paths; an empty object or list is one."""
    members = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    leaves: dict[tuple[str | int, ...], Any] = {}
    for name, member in members:
        leaves |= _leaves(member, (*path, name))
    return leaves or {path: content}


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(members)
    if len(content) != len(members):
        raise UnreadableError("a key occurs twice in one object")
    return content


def _bounded(digits: str) -> str:
    if digits.lstrip("-").isalpha():  # Infinity, NaN
        raise UnreadableError(f"{digits} is not JSON")
    if len(digits) > MAX_DIGITS:
        raise UnreadableError(f"a number has {len(digits)} characters, at most {MAX_DIGITS} are read")
    if _LARGE_EXPONENT.search(digits):
        raise UnreadableError(f"the number {shown(digits)} has an exponent of more than three digits")
    return digits


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_bounded,
    parse_float=lambda digits: Decimal(_bounded(digits)),
    parse_int=lambda digits: int(_bounded(digits)),
)
_CANONICAL = json.JSONEncoder(sort_keys=True, default=lambda number: {"number": str(_EXACT.normalize(number))})


def _difference(answer: Any, reference: Any, path: str) -> str:
    if isinstance(reference, Decimal) and type(answer) is int:
        answer = Decimal(answer)
    if type(answer) is not type(reference):
        return f"{path} is of type {_type(answer)}, not {_type(reference)}"
    if isinstance(reference, dict):
        if missing_keys := sorted(reference.keys() - answer.keys()):
            return f"{path} has no {shown(missing_keys[0])}"
        if extra_keys := sorted(answer.keys() - reference.keys()):
            return f"{path} has {shown(extra_keys[0])}, which is not in the reference"
        keys: Iterable[Any] = sorted(reference)
    elif isinstance(reference, list):
        if len(answer) != len(reference):
            return f"{path} has {len(answer)} items, not {len(reference)}"
        keys = range(len(reference))
    else:
        return "" if answer == reference else f"{path} is {shown(str(answer))}, not {shown(str(reference))}"
    differences = (_difference(answer[key], reference[key], f"{path}.{key}") for key in keys)
    return next(filter(None, differences), "")


def _type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", Decimal: "number"}
    return names.get(type(value), "null")
