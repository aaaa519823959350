"""Recipes as TOML: found, read, composed, overridden, checked and written.

An unknown key is an error that names the nearest known one; a wrong value is an error that names the key, the value and
what is allowed; a value that no part of this recipe reads is an error too.
"""

import difflib
import json
import math
import re
import tomllib
import types
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from groupwise.config.kinds import ARTIFACTS, FOLDER, Kinds, Section
from groupwise.config.places import RECIPES, decoded, expanded
from groupwise.config.schema import section_at, value_at
from groupwise.errors import ConfigError

EXTENDS = "extends"
"""Key of a recipe: the recipes that it builds on."""

SectionT = TypeVar("SectionT", bound=Section)
Changes = Sequence[str] | Mapping[str, Any]
"""Changes of a recipe: `a.b=c` texts, as after `--set`, or values by dotted key."""
Source = str | Path | Mapping[str, Any]
"""A recipe: its file, the name of a shipped one such as `arithmetic`, or its tables."""
USUAL = {"advantage": "group_mean", "annotator": "oracle", "engine": "in_process", "policy": "clipped_ratio"}
"""By key, the kind of a section that names none; of other sections a recipe above or the task says it."""


def recipe_file(name: str, folder: Path) -> Path:
    """Return the recipe of that name: the file in a folder, else the one that is shipped.

    A shipped one is found as `algorithms/dapo.toml`, `algorithms/dapo`, `arithmetic` or `recipes/arithmetic.toml`.
    Where there is neither, the path in the folder is returned; reading it reports what is missing.

    >>> recipe_file("arithmetic", Path("nowhere")).name
    'arithmetic.toml'
    """
    name = expanded(name)
    near, parts = folder / name, Path(name).parts
    if near.is_file() or Path(name).is_absolute() or ".." in parts:
        return near
    inside = Path(*parts[1:]) if parts[:1] == (RECIPES.name,) else Path(name)
    files = (RECIPES / inside, (RECIPES / inside).with_name(f"{inside.name}.toml")) if inside.name else ()
    return next((file for file in files if file.is_file()), near)


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes that can be run, without those that others extend."""
    return sorted(file.stem for file in RECIPES.glob("*.toml"))


def named(source: Source) -> tuple[str, Path]:
    """Return the name of a recipe in errors, and the folder in which its files are looked for first."""
    if isinstance(source, Mapping):
        return "the recipe", Path()
    path = recipe_file(str(source), Path())
    return str(path), path.parent


MOST_PARTS = 100
"""Most parts of a dotted key. The parser's time grows with their square: 20,000, in 40 kB, keep it busy for minutes."""
_ENDLESS_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*(?:[\w'\"-]+[ \t]*\.[ \t]*){{{MOST_PARTS},}}", re.MULTILINE)


def read_toml(path: Path) -> dict[str, Any]:
    """Return a file's tables as nested dictionaries. Raises ConfigError: the file is missing or malformed."""
    try:
        text = decoded(path.read_bytes())
        if _ENDLESS_KEY.search(text):
            raise ConfigError(f"{path} is not a readable TOML file: a key has more than {MOST_PARTS} parts")
        return tomllib.loads(text)
    except FileNotFoundError:
        algorithms = {file.stem: f"algorithms/{file.stem}" for file in RECIPES.glob("algorithms/*.toml")}
        names = algorithms | {name: name for name in recipe_names()}
        nearest = difflib.get_close_matches(path.stem, names, n=1, cutoff=0.6)
        hint = f"did you mean {names[nearest[0]]}? " if nearest else ""
        raise ConfigError(f"there is no recipe {path}; {hint}Groupwise brings {', '.join(recipe_names())}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a readable TOML file: {error}") from None


def read_recipe(source: Source, changes: Changes = (), over: Sequence[str] = ()) -> dict[str, Any]:
    """Return a recipe's tables with what it extends; other recipes over them, then the changes.

    Raises ConfigError: a file cannot be read, a recipe extends itself, or a change is malformed.
    """
    name, folder = named(source)
    tables = _completed(source, name, folder, ()) if isinstance(source, Mapping) else _extended(Path(name), ())
    for other in over:
        tables = merged(tables, _extended(recipe_file(other, Path()), ()))
    return overridden(tables, as_overrides(changes))


def _extended(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    chain = (*above, path.resolve())
    if path.resolve() in above:
        raise ConfigError(f"a recipe extends itself: {' -> '.join(map(str, chain))}")
    return _completed(read_toml(path), str(path), path.parent, chain)


def _completed(tables: Mapping[str, Any], name: str, folder: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Return tables over those of the recipes they `extend`, beside them or shipped; later ones count more."""
    tables = dict(tables)
    names = tables.pop(EXTENDS, [])
    if not isinstance(names, list | tuple) or not all(isinstance(base, str) for base in names):
        raise ConfigError(f"{name}: {EXTENDS} = {names!r} must be a list of recipe files, relative to this one")
    below: dict[str, Any] = {}
    for base in names:
        below = merged(below, _extended(recipe_file(base, folder), chain))
    return merged(below, tables)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables, the second over the first; a table of another `kind` replaces the one below as a whole."""
    result = dict(below)
    for key, value in above.items():
        lower = result.get(key)
        if isinstance(lower, str) and isinstance(value, Mapping):
            lower = {"kind": lower}  # a name alone is a section
        if isinstance(lower, Mapping) and isinstance(value, str) and value == (lower.get("kind") or USUAL.get(key)):
            continue  # as it is below
        if isinstance(lower, Mapping) and isinstance(value, Mapping):
            kind = lower.get("kind") or USUAL.get(key)
            is_same_kind = not kind or value.get("kind", kind) == kind
            result[key] = merged(lower, value) if is_same_kind else value
        else:
            result[key] = value
    return result


def as_overrides(changes: Changes) -> Sequence[str]:
    """Return changes as `a.b=c` texts. A table changes the keys that it holds and leaves the others of its section.

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
            names = {
                name: name if re.fullmatch(r"[\w.-]+", str(name), re.ASCII) else toml_literal(str(name))
                for name in value
            }
            texts += as_overrides({f"{key}.{names[name]}": inner for name, inner in value.items()})
        else:
            texts.append(f"{key}={toml_literal(value)}")
    return texts


def overridden(tables: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the tables, which stay as they are, with `a.b=c` overrides over them.

    Raises ConfigError: an override is malformed.
    """
    result: dict[str, Any] = json.loads(json.dumps(tables, default=str))
    for override in overrides:
        dotted, separator, text = override.partition("=")
        if not separator or not dotted.strip():
            raise ConfigError(f"the change {override!r} must look like section.key=value")
        names = list[str]()
        with suppress(tomllib.TOMLDecodeError):  # names may be quoted: `sources."my web".kind`
            inner: Any = tomllib.loads(f"{dotted} = 0")
            while isinstance(inner, dict) and inner:
                names += inner
                inner = inner[names[-1]]
        *path, last = names or dotted.strip().split(".")
        section = result
        for name in path:
            if isinstance(below := section.setdefault(name, {}), str) and name != "algorithm":
                section[name] = {"kind": below}  # a name alone is a section
            section = section[name]
            if not isinstance(section, dict):
                raise ConfigError(f"the change {override!r}: {name} is a value, not a section")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:  # a text without quotes
            value = text.strip()
        before, here = section.get("kind") or USUAL.get(path[-1] if path else ""), section.get(last)
        dropped: list[str] = []
        if isinstance(value, str) and isinstance(here, dict):  # a name alone is a section
            if value == (here.get("kind") or USUAL.get(last)):
                continue
            dropped = [name for name in here if name != "kind"]
        elif last == "kind" and before and before != value:  # as in `merged`: the settings belong to the other kind
            dropped = [name for name in section if name != last]
            section.clear()
        if dropped:
            warnings.warn(f"{override} begins the section anew, without {', '.join(dropped)}", stacklevel=2)
        section[last] = value
    return result


def load(model: type[SectionT], source: Source, changes: Changes = ()) -> SectionT:
    """Read a recipe with what it extends, apply the changes and check the result."""
    name, folder = named(source)
    return parse(model, read_recipe(source, changes), source=name, folder=folder)


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
        found = error.errors()  # a list whose items are at fault is found empty, too
        above = {fault["loc"][:depth] for fault in found for depth in range(len(fault["loc"]))}
        faults = "\n".join(f"  {_explain(one, model, tables, folder)}" for one in found if one["loc"] not in above)
        raise ConfigError(f"{source} cannot be used:\n{faults}") from None


_WORDS = {
    "a valid (tuple|list)$": 'a list, such as ["a", "b"]', "^Tuple": "List", " after validation": "",
    "a valid dictionary.*": "a section",
}  # fmt: skip
"""The field's words for those of the library that checks values, which are Python's."""


def _explain(fault: Any, model: type[BaseModel], tables: Mapping[str, Any], folder: Path | None) -> str:
    path = [str(part) for part in fault["loc"]]
    dotted = ".".join(section_at(model, tables, path, folder)[0])
    if fault["type"] != "extra_forbidden":
        value = "" if isinstance(fault["input"], Mapping) else f" = {fault['input']!r}"
        said = fault["msg"].removeprefix("Value error, ")
        for pattern, words in _WORDS.items():
            said = re.sub(pattern, words, said)
        return f"{dotted or 'recipe'}{value}: {said}"
    *above, key = path
    for section in section_at(model, tables, above[:-1], folder)[1] if above else ():
        field = section.model_fields.get(above[-1])
        for kinds in field.metadata if field else ():
            built_in = kinds.table if isinstance(kinds, Kinds) else ()
            if readers := [kind for kind in built_in if key in kinds.settings(kind).model_fields]:
                kind = kinds.kind_of(value_at(tables, above)) or "the one in use"
                reads = "reads" if len(readers) == 1 else "read"
                return f"{dotted}: a setting without effect: {', '.join(readers)} {reads} it, {kind} does not"
    keys = sorted({name for section in section_at(model, tables, above, folder)[1] for name in section.model_fields})
    nearest = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known keys: {', '.join(keys)}"
    return f"{dotted}: unknown key; {hint}"


def dump_toml(section: Section) -> str:
    """Return every value of a resolved recipe as TOML; reading it back gives an equal recipe."""
    return dump_tables(section.model_dump(mode="json", exclude_none=True))


def dump_tables(tables: Mapping[str, Any]) -> str:
    """Return nested tables as TOML."""
    lines: list[str] = []
    _dump_table(tables, [], lines)
    return "\n".join(lines).lstrip("\n") + "\n"


def _dump_table(table: Mapping[str, Any], path: list[str], lines: list[str]) -> None:
    values = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    if path and (values or not table):
        lines += ["", f"[{'.'.join(map(_written, path))}]"]
    lines += [f"{_written(name)} = {toml_literal(value)}" for name, value in values.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            _dump_table(value, [*path, name], lines)


def toml_literal(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_literal(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_written(name)} = {toml_literal(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        value = str(value)
    # JSON strings, numbers and booleans are TOML; DEL is the one character JSON leaves bare and TOML forbids
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(name: str) -> str:
    """A name as a key of TOML writes it."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else toml_literal(name)
