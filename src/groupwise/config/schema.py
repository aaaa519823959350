"""The geometry of settings: the sections that a field may hold, and the values that name something made before.

Two walkers: `held` walks the type of a field, `walk` the values of a section. Everything that has to know the shape of
a recipe uses them: errors, the tables of a pipeline's stages, the reference of keys, what a recipe reads.

A field names a model, a reward model or a file of data by its type, `path: DataRef`. Its value is a path, looked for
beside the recipe first; in a pipeline it may be `{name}`, what the stage `name` makes.
"""

import importlib.util
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import AfterValidator, BaseModel, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from groupwise.config.kinds import ARTIFACTS, FOLDER, Kinds, KindSection
from groupwise.config.places import Place, beside, expanded
from groupwise.errors import ConfigError, ModelError


def one_of(table: Collection[str]) -> AfterValidator:
    """Return the mark of a field that names an entry of a table."""

    def known(name: str) -> str:
        if name not in table:
            raise ValueError(f"allowed are {', '.join(table)}")
        return name

    return AfterValidator(known)


class Held(NamedTuple):
    """Sections that a field may hold: of one class, or of the classes of kinds, of which the value names one."""

    section: type[BaseModel] | None
    """The class; of kinds the one that all build on, None where they share none."""
    kinds: Kinds | None = None
    inside: type | None = None
    """`dict`, where the sections stand in a table by names of the user's own; `list` or `tuple`, where in a list."""

    def chosen(self, value: Any, folder: Path | None) -> type[BaseModel] | None:
        """Return the class that a value of a recipe chooses; for an unknown kind, the one that all build on."""
        if self.kinds is not None:
            try:
                return self.kinds.settings(str(self.kinds.kind_of(value)), folder)
            except ConfigError:
                pass  # an unknown kind is a fault of its own
        return self.section


def held(annotation: Any, marks: Sequence[Any] = (), inside: type | None = None) -> Iterator[Held]:
    """Yield the sections that a field of this type may hold; none where it holds values."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    if kinds := next((mark for mark in marks if isinstance(mark, Kinds)), None):
        yield Held(annotation if is_section else None, kinds, inside)
    elif is_section:
        yield Held(annotation, None, inside)
    elif origin is Annotated:
        yield from held(arguments[0], arguments[1:], inside)
    elif origin in (typing.Union, types.UnionType, dict, list, tuple):
        is_container = isinstance(origin, type) and issubclass(origin, dict | list | tuple)
        for argument in arguments:
            yield from held(argument, (), origin if is_container else inside)


def chosen_section(
    annotation: Any, metadata: Sequence[Any], value: Any, folder: Path | None = None
) -> type[BaseModel] | None:
    """Return the section that a field of this type holds, given its value in a recipe; None where it holds none."""
    fields = [field for field in held(annotation, metadata) if field.inside is None]
    models = [model for field in fields if (model := field.chosen(value, folder))]
    if len(models) > 1:
        tags = {text for text in value.values() if isinstance(text, str)} if isinstance(value, Mapping) else set()
        models = [model for model in models if any(has_tag(model, tag) for tag in tags)]
    return models[0] if len(models) == 1 else None


def has_tag(model: type[BaseModel], tag: str) -> bool:
    """Return whether a key of the section has this text as its only value, so that it chooses among several."""
    return any(typing.get_args(info.annotation) == (tag,) for info in model.model_fields.values())


def section_at(
    model: type[BaseModel], tables: Any, path: Sequence[str], folder: Path | None
) -> tuple[list[str], list[type[BaseModel]]]:
    """Return the keys of an error's location, and the sections that may stand at its end.

    The location also holds the names that chose members of unions; they are no keys. In a table of sections, such as
    `parts.NAME`, the name that the user chose is a key.
    """
    keys: list[str] = []
    models, by_name = [model], list[Held]()
    for part in path:
        chosen = [m for m in models if has_tag(m, part)] if len(models) > 1 and not by_name else []
        if chosen:
            models = chosen
            continue
        keys.append(part)
        value = value_at(tables, keys)
        if by_name:
            models, by_name = [m for field in by_name if (m := field.chosen(value, folder))], []
            continue
        fields = [m.model_fields[part] for m in models if part in m.model_fields]
        here = [field for info in fields for field in held(info.annotation, info.metadata)]
        by_name = [field for field in here if field.inside is dict]
        models = [m for field in here if (m := field.chosen(value, folder))] if fields else models
    return keys, models


def value_at(tables: Any, path: Sequence[str]) -> Any:
    """Return the value at a place of nested tables; None where there is none."""
    for part in path:
        tables = tables.get(part) if isinstance(tables, Mapping) else None
    return tables


Makes = Literal["model", "reward_model", "data", "place"]
"""`model`: a policy's checkpoint. `reward_model`: a reward model's. `data`: a file of rows. `place`: nothing, the path
is where something is written, or a folder of files, from the working directory."""
SHIPPED = "base"
"""The path that means the base model inside the package."""
_REFERENCE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Mark of a field whose strings name something that was made."""

    makes: Makes

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._resolved, handler(source))

    def _resolved(self, value: str, info: ValidationInfo) -> str:
        context = info.context or {}
        if name := stage_of(value):
            return str(context.get(ARTIFACTS, {}).get(name, value))
        if not value or (value == SHIPPED and self.makes != "data"):  # an implicit reward model is one
            return value
        try:
            return expanded(value) if self.makes == "place" else beside(value, context.get(FOLDER))
        except ConfigError as error:
            raise ValueError(str(error)) from error


ModelRef = Annotated[str, Artifact("model")]
RewardModelRef = Annotated[str, Artifact("reward_model")]
DataRef = Annotated[str, Artifact("data")]
PlaceRef = Annotated[str, Artifact("place")]


@runtime_checkable
class ReadsFiles(Protocol):
    """A section that reads files which no single key of it names."""

    def files_read(self) -> Iterable[str]: ...


def stage_of(value: str) -> str | None:
    """Return the stage whose output `{name}` means; None for a path."""
    match = _REFERENCE.fullmatch(value)
    return match[1] if match else None


def label(value: str) -> str:
    """Return the name of a value in data and pages: that of a stage, or the path itself."""
    return stage_of(value) or value


PACKAGE = "package:"
"""Begins a model path that means the GGUF file inside an installed Python package."""


def resolve(path: str) -> str:
    """Return the directory, file or hub name that a model path means.

    Raises ModelError: a package is not installed, or does not hold one GGUF file.
    """
    if not path.startswith(PACKAGE):
        return str(Path(__file__).parents[1] / "base_model") if path == SHIPPED else expanded(path)
    name, _, inside = path.removeprefix(PACKAGE).partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None:
        raise ModelError(f"{path!r}: there is no Python package {name!r} here; install it with pip")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.gguf"))]
    files = [file for file in files if not inside or file.as_posix().endswith(f"/{inside}")]
    if len(files) != 1:
        names = ", ".join(f"{PACKAGE}{name}/{file.name}" for file in files) or "none"
        raise ModelError(f"{path!r}: one GGUF file is needed in the package; there are: {names}")
    return str(files[0])


class Visited(NamedTuple):
    """A section or a plain value in a section."""

    key: str
    """Its dotted place; the items of a list share theirs."""
    value: Any
    makes: Makes | None
    """Of a value that names something made: what that is."""


def walk(value: Any, key: str = "", makes: Makes | None = None) -> Iterator[Visited]:
    """Yield a section and all sections and values in it, in the order of their fields; excluded fields are left out."""
    if isinstance(value, BaseModel):
        yield Visited(key, value, None)
        for name, info in type(value).model_fields.items():
            if not info.exclude:
                yield from walk(getattr(value, name), f"{key}.{name}" if key else name, _made_by(info))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from walk(inner, f"{key}.{name}", makes)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from walk(inner, key, makes)
    else:
        yield Visited(key, value, makes)


def _made_by(info: Any) -> Makes | None:
    """Return what the strings of a field name, by their mark at any depth in its type."""
    parts = [*info.metadata, info.annotation]
    for part in parts:  # which grows
        if isinstance(part, Artifact):
            return part.makes
        parts += typing.get_args(part)
    return None


def named(section: BaseModel) -> Iterator[Visited]:
    """Yield everything that a section and those in it name, each a text, in the order of their fields."""
    return (one for one in walk(section) if one.makes not in (None, "place") and isinstance(one.value, str))


def files(section: BaseModel) -> Iterator[str]:
    """Yield paths of everything outside the pipeline that a section reads, the user's own Python included."""
    yield from (value for _, value, _ in named(section) if value and stage_of(value) is None)
    for _, value, _ in walk(section):
        if isinstance(value, ReadsFiles):
            yield from value.files_read()
        if isinstance(value, KindSection) and (location := Place.of(value.kind)):
            yield str(location.file)


SectionT = TypeVar("SectionT", bound=BaseModel)


def located(section: SectionT, paths: Mapping[str, str]) -> SectionT:
    """Return the section with every `{name}` replaced by that stage's path; names without a path stay."""

    def replaced(value: Any, makes: Makes | None) -> Any:
        if isinstance(value, BaseModel):
            return located(value, paths)
        if isinstance(value, Mapping):
            return {name: replaced(inner, makes) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(replaced(inner, makes) for inner in value)
        return paths.get(stage_of(value) or "", value) if isinstance(value, str) and makes else value

    before = {name: getattr(section, name) for name in type(section).model_fields}
    after = {name: replaced(before[name], _made_by(info)) for name, info in type(section).model_fields.items()}
    changes = {name: value for name, value in after.items() if value != before[name]}
    return section.model_copy(update=changes) if changes else section
