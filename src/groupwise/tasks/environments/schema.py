"""JSON schemas of Python functions, as `transformers.utils.get_json_schema` writes them, and values against them."""

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from groupwise.errors import ConfigError

Schema = Mapping[str, Any]

_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean", list: "array", dict: "object"}
_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "string": (str,), "boolean": (bool,), "array": (list,),
    "object": (dict,), "null": (type(None),),
}  # fmt: skip
_PARTS = re.compile(r"(?m)^(Args|Returns|Raises):[ \t]*$")
_ARGUMENT = re.compile(r"(?ms)^([ \t]*)(\w+)(?: *\([^)]*\))?:[ \t]*(.*?)(?=^\1\w+(?: *\([^)]*\))?:|\Z)")


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a chat template shows of a function: its type hints and its docstring with `Args:`.

    Raises:
        ConfigError: an argument has no hint, one without a schema, or no description.
    """
    name, doc = function.__name__, inspect.getdoc(function)
    if not doc:
        raise ConfigError(f"the tool {name} has no docstring, which the model would read")
    before, *sections = _PARTS.split(doc)
    texts = dict(zip(sections[::2], map(inspect.cleandoc, sections[1::2]), strict=True))
    told = {each[1]: " ".join(each[2].split()) for each in _ARGUMENT.findall(texts.get("Args", ""))}
    hints, properties, required = get_type_hints(function), dict[str, Any](), list[str]()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self" and parameter.annotation is parameter.empty:
            continue  # of a method
        what = f"the argument {parameter.name} of the tool {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"{what} cannot be given by its name; allowed are arguments that can")
        if parameter.name not in hints:
            raise ConfigError(f"{what} has no type hint")
        if parameter.name not in told:
            raise ConfigError(f"{what} has no line below `Args:` in the docstring")
        properties[parameter.name] = _of_hint(hints[parameter.name], what) | {"description": told[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    shown = {"name": name, "description": before.strip(), "parameters": parameters}
    try:
        result = _of_hint(hints["return"], "") if hints.get("return", type(None)) is not type(None) else None
    except ConfigError:
        result = None  # it is never written by the model
    if result is not None:
        shown["return"] = result | ({"description": texts["Returns"]} if "Returns" in texts else {})
    return {"type": "function", "function": shown}


def _of_hint(hint: Any, what: str) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if (origin or hint) in _NAMES:
        schema: dict[str, Any] = {"type": _NAMES[origin or hint]}
        if origin is list:
            schema["items"] = _of_hint(parts[0], what)
        if origin is dict:
            schema["additionalProperties"] = _of_hint(parts[1], what)
        return schema
    if origin is Literal and all(type(part) in _NAMES for part in parts):
        names = list(dict.fromkeys(_NAMES[type(part)] for part in parts))
        return {"type": names[0] if len(names) == 1 else names, "enum": list(parts)}
    if origin in (Union, types.UnionType):
        schemas = [_of_hint(part, what) for part in parts if part is not type(None)]
        if len(schemas) == 1:
            schema = schemas[0]
        elif all(each.keys() == {"type"} and isinstance(each["type"], str) for each in schemas):
            schema = {"type": sorted({each["type"] for each in schemas})}
        else:
            schema = {"anyOf": schemas}
        return schema | ({"nullable": True} if type(None) in parts else {})
    raise ConfigError(
        f"{what} has the type {hint!r}; allowed are int, float, str, bool, list[...], dict[str, ...], Literal, Any and "
        "unions of these"
    )


def fault_of(value: Any, schema: Schema, what: str) -> str:
    """Return why a value does not fit a schema, empty where it does. Nothing is converted: "3" is no integer.

    >>> fault_of({"n": "3"}, {"type": "object", "properties": {"n": {"type": "integer"}}}, "arguments")
    'arguments.n = "3": integer is needed'
    """
    if value is None and schema.get("nullable"):
        return ""
    shown = f"{what} = {json.dumps(value, ensure_ascii=False)[:80]}"
    if options := schema.get("anyOf"):
        return "" if any(not fault_of(value, each, what) for each in options) else f"{shown} fits none of its types"
    names = names_in(schema)
    if names and not any(isinstance(value, _TYPES[name]) for name in names):
        return f"{shown}: {' or '.join(names)} is needed"
    if isinstance(value, bool) and names and "boolean" not in names:
        return f"{shown}: {' or '.join(names)} is needed"
    if "enum" in schema and value not in schema["enum"]:
        return f"{shown}: allowed are {', '.join(map(str, schema['enum']))}"
    if isinstance(value, list) and "items" in schema:
        faults = (fault_of(each, schema["items"], f"{what}[{i}]") for i, each in enumerate(value))
        return next(filter(None, faults), "")
    if not isinstance(value, dict):
        return ""
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{what} without {', '.join(missing)}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
    for name, each in value.items():
        if name not in known and others is False:
            return f"{what} with {name!r:.80}; allowed are {', '.join(known) or 'none'}"
        inner = known.get(name, others if isinstance(others, Mapping) else {})
        if fault := fault_of(each, inner, f"{what}.{name}"):
            return fault
    return ""


def names_in(schema: Schema) -> list[str]:
    """Return the names of the types that a schema allows; none: any type."""
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else list(given)
