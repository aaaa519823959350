"""Recipes: TOML files read into frozen pydantic models, strictly.

The models themselves stand beside the component that reads them (a task's dials in the task, the optimizer's in
`training`); this file only knows how to read, compose, override, check and write them. An unknown key is an error that
names the nearest known one; a wrong value is an error that names the key, the value and what is allowed; a value that
no part of this recipe reads is an error too.
"""

import difflib
import json
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from groupwise.config.shipped import no_recipe, recipe_file
from groupwise.errors import ConfigError

EXTENDS = "extends"
"""Key of a recipe: the recipes that it builds on."""
FOLDER = "folder"
"""Key of a validation's context: the folder of the recipe that is read; files are looked for there first."""
ARTIFACTS = "artifacts"
"""Key of a validation's context: paths by the names that may stand for them, as `{base}` in a pipeline."""


@dataclass(frozen=True, slots=True)
class ReadIf:
    """Marks a field that is read under a condition only: another value than its default is an error elsewhere.

    class Loss(Section):
        kl_coef: float = 0.0
        kl_estimator: Annotated[str, ReadIf(lambda loss: loss.kl_coef > 0, "kl_coef > 0")] = "k3"
    """

    holds: Callable[[Any], bool]
    """True where the section reads the field."""
    when: str
    """The condition in words, for the error and the reference of all keys."""


class Section(BaseModel):
    """Base of every configuration model: frozen, unknown keys forbidden, one docstring per field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True)

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        """No key is set that nothing reads."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            for mark in field.metadata:
                if isinstance(mark, ReadIf) and value != field.get_default() and not mark.holds(self):
                    raise ValueError(f"{name} = {value!r} has no effect here: it is read only with {mark.when}")
        return self


SectionT = TypeVar("SectionT", bound=Section)
Changes = Sequence[str] | Mapping[str, Any]
"""Changes of a recipe: `a.b=c` texts, as after `--set`, or values by dotted key."""
Source = str | Path | Mapping[str, Any]
"""A recipe: its file, the name of a shipped one such as `arithmetic`, or its tables."""


def load(model: type[SectionT], source: Source, changes: Changes = ()) -> SectionT:
    """Read a recipe with what it extends, apply the changes and check the result."""
    name, folder = named(source)
    return parse(model, read_recipe(source, changes), source=name, folder=folder)


def named(source: Source) -> tuple[str, Path]:
    """The name of a recipe in errors, and the folder in which its files are looked for first."""
    if isinstance(source, Mapping):
        return "the recipe", Path()
    path = recipe_file(str(source), Path())
    return str(path), path.parent


MOST_PARTS = 100
"""Most parts of a dotted key. The parser's time grows with their square: 20,000, in 40 kB, keep it busy for minutes."""
_ENDLESS_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:[\w'\"-]+[ \t]*\.[ \t]*){{{MOST_PARTS},}}", re.MULTILINE)


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables as nested dictionaries; a missing or malformed file is a ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
        if _ENDLESS_KEY.search(text):
            raise ConfigError(f"{path} is not a readable TOML file: a key has more than {MOST_PARTS} parts")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(no_recipe(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ConfigError(f"{path} is not a readable TOML file: {error}") from None


def read_recipe(source: Source, changes: Changes = (), over: Sequence[str] = ()) -> dict[str, Any]:
    """A recipe's tables with what it extends; other recipes over them, then the changes.

    Raises:
        ConfigError: a file cannot be read, a recipe extends itself, or a change is malformed.
    """
    name, folder = named(source)
    tables = _completed(source, name, folder, ()) if isinstance(source, Mapping) else _extended(Path(name), ())
    for other in over:
        tables = merged(tables, _extended(recipe_file(other, Path()), ()))
    return overridden(tables, as_overrides(changes))


def _extended(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """The file's tables over those of the recipes it extends."""
    chain = (*above, path.resolve())
    if path.resolve() in above:
        raise ConfigError(f"a recipe extends itself: {' -> '.join(map(str, chain))}")
    return _completed(read_toml(path), str(path), path.parent, chain)


def _completed(tables: Mapping[str, Any], name: str, folder: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Tables over those of the recipes they `extend`, beside them or shipped; later ones count more."""
    own = dict(tables)
    names = own.pop(EXTENDS, [])
    if not isinstance(names, list | tuple) or not all(isinstance(base, str) for base in names):
        raise ConfigError(f"{name}: {EXTENDS} = {names!r} must be a list of recipe files, relative to this one")
    below: dict[str, Any] = {}
    for base in names:
        below = merged(below, _extended(recipe_file(base, folder), chain))
    return merged(below, own)


def as_overrides(changes: Changes) -> Sequence[str]:
    """Changes as `a.b=c` texts. A table changes the keys that it holds and leaves the others of its section.

    >>> as_overrides({"run.seed": 1, "task": {"kind": "arithmetic", "digits": (2, 2)}})
    ['run.seed=1', 'task.kind="arithmetic"', 'task.digits=[2, 2]']

    Raises:
        ConfigError: a value is None, which a recipe cannot hold.
    """
    if isinstance(changes, str):
        return [changes]
    if not isinstance(changes, Mapping):
        return changes
    texts: list[str] = []
    for key, value in changes.items():
        if value is None:
            raise ConfigError(f"{key} = None: a recipe has no such value; leave the key out")
        if isinstance(value, Mapping) and value:
            texts += as_overrides({f"{key}.{name}": inner for name, inner in value.items()})
        else:
            texts.append(f"{key}={toml_literal(value)}")
    return texts


def overridden(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The tables, those given as they are, with `a.b=c` overrides over them.

    Raises:
        ConfigError: an override is malformed.
    """
    result: dict[str, Any] = json.loads(json.dumps(tables, default=str))
    for override in overrides:
        _apply_override(result, override)
    return result


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, the second over the first; a table of another `kind` replaces the one below it as a whole."""
    result = dict(below)
    for key, value in above.items():
        mine = result.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            same = value.get("kind", mine.get("kind")) == mine.get("kind", value.get("kind"))
            result[key] = merged(mine, value) if same else value
        else:
            result[key] = value
    return result


def parse(
    model: type[SectionT],
    data: Mapping[str, Any],
    changes: Changes = (),
    source: str = "recipe",
    folder: Path | None = None,
    artifacts: Mapping[str, str] = types.MappingProxyType({}),
) -> SectionT:
    """Check nested dictionaries against a model.

    Args:
        model: what they must be.
        data: the tables of a recipe.
        changes: over the tables.
        source: what an error calls the recipe.
        folder: where the recipe stands; files that it names are looked for there first.
        artifacts: paths by the names that stand for them as `{name}`.

    Raises:
        ConfigError: one line per fault: the dotted key, the value found and what is allowed.
    """
    tables = overridden(data, as_overrides(changes))
    try:
        return model.model_validate(tables, context={FOLDER: folder, ARTIFACTS: artifacts})
    except ValidationError as error:
        faults = "\n".join(f"  {_explain(fault, model, tables, folder)}" for fault in error.errors())
        raise ConfigError(f"{source} cannot be used:\n{faults}") from None


def _apply_override(data: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    if not separator or not dotted.strip():
        raise ConfigError(f"the change {override!r} must look like section.key=value")
    *path, last = dotted.strip().split(".")
    for name in path:
        data = data.setdefault(name, {})
        if not isinstance(data, dict):
            raise ConfigError(f"the change {override!r}: {name} is a value, not a section")
    value = _toml_value(text.strip())
    if last == "kind" and data.get(last, value) != value:
        data.clear()  # as in `merged`: the settings belong to the other kind
    data[last] = value


def _toml_value(text: str) -> Any:
    """A TOML value if it reads as one, else the text itself, so that quotes are optional on the command line."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(fault: Any, model: type[BaseModel], tables: Mapping[str, Any], folder: Path | None) -> str:
    path = [str(part) for part in fault["loc"]]
    dotted = ".".join(_walk(model, tables, path, folder)[0])
    if fault["type"] != "extra_forbidden":
        value = "" if isinstance(fault["input"], Mapping) else f" = {fault['input']!r}"
        return f"{dotted or 'recipe'}{value}: {fault['msg'].removeprefix('Value error, ')}"
    elsewhere = _other_kinds(model, tables, path, folder)
    if elsewhere:
        return f"{dotted}: {elsewhere}"
    keys = sorted({name for section in _walk(model, tables, path[:-1], folder)[1] for name in section.model_fields})
    nearest = difflib.get_close_matches(path[-1], keys, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known keys: {', '.join(keys)}"
    return f"{dotted}: unknown key; {hint}"


def _other_kinds(model: type[BaseModel], tables: Any, path: Sequence[str], folder: Path | None) -> str:
    """Names the kinds that read a key which this section does not; empty where none does."""
    *above, key = path
    if not above:
        return ""
    for section in _walk(model, tables, above[:-1], folder)[1]:
        field = section.model_fields.get(above[-1])
        for kinds in field.metadata if field else ():
            if isinstance(kinds, _ChosenByKind) and (readers := kinds.kinds_with(key)):
                kind = kinds.kind_of(_value_at(tables, above)) or "the one in use"
                reads = "reads" if len(readers) == 1 else "read"
                return f"a setting without effect: {', '.join(readers)} {reads} it, {kind} does not"
    return ""


@typing.runtime_checkable
class _ChosenByKind(typing.Protocol):
    """Mark of a field whose section is read by the class of its kind (`kinds.Kinds`)."""

    def kind_of(self, value: Any) -> str | None: ...

    def settings(self, kind: str, folder: Path | None) -> type[BaseModel]: ...

    def kinds_with(self, key: str) -> list[str]: ...


def _value_at(tables: Any, path: Sequence[str]) -> Any:
    for part in path:
        tables = tables.get(part) if isinstance(tables, Mapping) else None
    return tables


def _walk(
    model: type[BaseModel], tables: Any, path: Sequence[str], folder: Path | None
) -> tuple[list[str], list[type[BaseModel]]]:
    """The keys of an error's location, and the sections at its end.

    The location also holds the names that chose members of unions; they are no keys. In a table of sections, such as
    `parts.NAME`, the name that the user chose is a key.
    """
    keys: list[str] = []
    models, inner = [model], list[Any]()
    for part in path:
        chosen = [m for m in models if _tag_matches(m, part)] if len(models) > 1 and not inner else []
        if chosen:
            models = chosen
            continue
        keys.append(part)
        value = _value_at(tables, keys)
        if inner:  # a name that the user chose
            models, inner = [sub for annotation in inner for sub in _models_in(annotation, (), value, folder)], []
            continue
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        inner = [typing.get_args(f.annotation)[1] for f in fields if typing.get_origin(f.annotation) is dict]
        models = (
            [sub for f in fields for sub in _models_in(f.annotation, f.metadata, value, folder)] if fields else models
        )
    return keys, models


def _models_in(annotation: Any, metadata: Sequence[Any], value: Any, folder: Path | None) -> Iterator[type[BaseModel]]:
    """The sections that a field of this type may hold, given what it holds."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *metadata = typing.get_args(annotation)
    if chosen := next((mark for mark in metadata if isinstance(mark, _ChosenByKind)), None):
        try:
            yield chosen.settings(str(chosen.kind_of(value)), folder)
            return
        except ConfigError:
            pass  # an unknown kind is a fault of its own
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, dict):
        for argument in typing.get_args(annotation):
            yield from _models_in(argument, (), value, folder)


def chosen_section(
    annotation: Any, metadata: Sequence[Any], value: Any, folder: Path | None = None
) -> type[BaseModel] | None:
    """The section that a field of this type holds, given its value in a recipe; None where it holds none."""
    models = list(_models_in(annotation, metadata, value, folder))
    tags = {text for text in value.values() if isinstance(text, str)} if isinstance(value, Mapping) else set()
    if len(models) > 1:
        models = [model for model in models if any(_tag_matches(model, tag) for tag in tags)]
    return models[0] if len(models) == 1 else None


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
    lines += [f"{name} = {toml_literal(value)}" for name, value in values.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            _dump_table(value, [*path, name], lines)


def toml_literal(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_literal(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {toml_literal(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, Path):
        value = str(value)
    # JSON strings, numbers and booleans are TOML; DEL is the one character JSON leaves bare and TOML forbids
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
