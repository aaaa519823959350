"""Recipes: TOML files read into frozen pydantic models, strictly.

The models themselves stand beside the component that reads them (a task's dials in the task, the optimizer's in
`training`); this file only knows how to read, override, check and write them. An unknown key is an error that names
the nearest known one; a wrong value is an error that names the key, the value and what is allowed.
"""

import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from groupwise.errors import ConfigError


class Section(BaseModel):
    """Base of every configuration model: frozen, unknown keys forbidden, one docstring per field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)


SectionT = TypeVar("SectionT", bound=Section)


def load(model: type[SectionT], path: Path, overrides: Sequence[str] = ()) -> SectionT:
    """Read a recipe file, apply `a.b=c` overrides and check the result."""
    return parse(model, read_toml(path), overrides, source=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables as nested dictionaries; a missing or malformed file is a ConfigError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ConfigError(f"{path} is not a readable TOML file: {error}") from None


def parse(
    model: type[SectionT], data: Mapping[str, Any], overrides: Sequence[str] = (), source: str = "recipe"
) -> SectionT:
    """Check nested dictionaries against a model.

    Raises:
        ConfigError: one line per fault: the dotted key, the value found and what is allowed.
    """
    merged = json.loads(json.dumps(data, default=str))
    for override in overrides:
        _apply_override(merged, override)
    try:
        return model.model_validate(merged)
    except ValidationError as error:
        faults = "\n".join(f"  {_explain(fault, model)}" for fault in error.errors())
        raise ConfigError(f"{source} cannot be used:\n{faults}") from None


def _apply_override(data: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    if not separator or not dotted.strip():
        raise ConfigError(f"--set {override!r} must look like section.key=value")
    *path, last = dotted.strip().split(".")
    for name in path:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ConfigError(f"--set {override!r}: {name} is a value, not a section")
    data[last] = _toml_value(text.strip())


def _toml_value(text: str) -> Any:
    """A TOML value if it reads as one, else the text itself, so that quotes are optional on the command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(fault: Any, model: type[BaseModel]) -> str:
    path = [str(part) for part in fault["loc"]]
    dotted = ".".join(_without_tags(model, path))
    if fault["type"] != "extra_forbidden":
        found = "" if isinstance(fault["input"], Mapping) else f" = {fault['input']!r}"
        return f"{dotted or 'recipe'}{found}: {fault['msg'].removeprefix('Value error, ')}"
    known = _keys_at(model, path[:-1])
    nearest = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known keys: {', '.join(sorted(known))}"
    return f"{dotted}: unknown key; {hint}"


def _keys_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Field names of the section at a path of an error location."""
    return sorted({name for section in _walk(model, path)[1] for name in section.model_fields})


def _without_tags(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """An error's location as the user writes it."""
    return _walk(model, path)[0]


def _walk(model: type[BaseModel], path: Sequence[str]) -> tuple[list[str], list[type[BaseModel]]]:
    """The keys of an error's location, and the sections at its end.

    The location also holds the names that chose members of unions; they are no keys. In a table of sections, such as
    `parts.NAME`, the user's own name is a key, whatever it is.
    """
    kept: list[str] = []
    models, is_own_name = [model], False
    for part in path:
        is_union = len(models) > 1 and not is_own_name
        chosen = [m for m in models if _tag_matches(m, part)] if is_union else []
        if not chosen:
            kept.append(part)
        known = [] if chosen or is_own_name else [m for m in models if part in m.model_fields]
        fields = [m.model_fields[part] for m in known]
        models = [sub for field in fields for sub in _models_in(field.annotation)] if fields else chosen or models
        is_own_name = any(typing.get_origin(field.annotation) is dict for field in fields)
    return kept, models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated, dict):
        return [found for argument in typing.get_args(annotation) for found in _models_in(argument)]
    return []


def _tag_matches(model: type[BaseModel], tag: str) -> bool:
    return any(typing.get_args(info.annotation) == (tag,) for info in model.model_fields.values())


def dump_toml(section: Section) -> str:
    """Every value of a resolved recipe as TOML; reading it back gives an equal recipe."""
    lines: list[str] = []
    _dump_table(section.model_dump(mode="json", exclude_none=True), [], lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _dump_table(table: Mapping[str, Any], path: list[str], lines: list[str]) -> None:
    values = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    if path and (values or not table):
        lines += ["", f"[{'.'.join(path)}]"]
    lines += [f"{name} = {_toml_literal(value)}" for name, value in values.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            _dump_table(value, [*path, name], lines)


def _toml_literal(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml_literal(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml_literal(one)}' for name, one in value.items())}}}"
    if isinstance(value, float) and value != value:
        return "nan"
    # JSON strings, numbers and booleans are TOML; DEL is the one character JSON leaves bare and TOML forbids
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
