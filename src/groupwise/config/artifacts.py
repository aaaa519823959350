"""References of a recipe to things made before: a model, a reward model, a file of data.

A field says so by its type, `path: DataRef`. Its value is a path, looked for beside the recipe first; in a pipeline
it may be `{name}`, what the stage `name` makes. `named` and `files` say what a recipe reads: they walk
the fields of its sections, so a new key counts by its type alone.
"""

import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from groupwise.config import ARTIFACTS, FOLDER
from groupwise.config.kinds import KindSection, Place, beside
from groupwise.errors import ConfigError

Makes = Literal["model", "reward_model", "data"]
"""`model`: a policy's checkpoint. `reward_model`: a reward model's. `data`: a file of rows."""
SHIPPED = "base"
"""The path that means the base model inside the package."""
_REFERENCE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """Mark of a field whose strings name something that was made."""

    makes: Makes
    """What it must be."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._resolved, handler(source))

    def _resolved(self, value: str, info: ValidationInfo) -> str:
        context = info.context or {}
        if name := stage_of(value):
            return str(context.get(ARTIFACTS, {}).get(name, value))
        if not value or (value == SHIPPED and self.makes != "data"):  # an implicit reward model is one
            return value
        try:
            return beside(value, context.get(FOLDER))
        except ConfigError as error:
            raise ValueError(str(error)) from error


ModelRef = Annotated[str, Artifact("model")]
RewardModelRef = Annotated[str, Artifact("reward_model")]
DataRef = Annotated[str, Artifact("data")]


@runtime_checkable
class ReadsFiles(Protocol):
    """A section that reads files which no key of its own names as a whole."""

    def files_read(self) -> Iterable[str]:
        """Their paths."""
        ...


class Named(NamedTuple):
    """A value that names something made."""

    key: str
    """Its dotted place in the recipe."""
    value: str
    makes: Makes
    """What it must be."""


def stage_of(value: str) -> str | None:
    """The stage whose output `{name}` means; None for a path."""
    match = _REFERENCE.fullmatch(value)
    return match[1] if match else None


def label(value: str) -> str:
    """The name of a value in data and pages: that of a stage, or the path itself."""
    return stage_of(value) or value


def sections(value: Any) -> Iterator[BaseModel]:
    """A section and all sections in it that a record of it holds, in the order of their fields."""
    if isinstance(value, BaseModel):
        yield value
        for key, field in type(value).model_fields.items():
            if not field.exclude:
                yield from sections(getattr(value, key))
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from sections(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from sections(inner)


def named(section: BaseModel, prefix: str = "") -> Iterator[Named]:
    """Everything that a section and those in it name, in the order of their fields."""
    for key, field in type(section).model_fields.items():
        yield from _named(getattr(section, key), _mark(field.annotation, field.metadata), f"{prefix}{key}")


def _named(value: Any, mark: Artifact | None, key: str) -> Iterator[Named]:
    if isinstance(value, BaseModel):
        yield from named(value, f"{key}.")
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _named(inner, mark, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner, mark, key)
    elif isinstance(value, str) and mark:
        yield Named(key, value, mark.makes)


def _mark(annotation: Any, metadata: Sequence[Any] = ()) -> Artifact | None:
    """The mark of a field's strings, at any depth in its type."""
    if artifact := next((mark for mark in metadata if isinstance(mark, Artifact)), None):
        return artifact
    inner, *marks = typing.get_args(annotation) or (None,)
    if typing.get_origin(annotation) is Annotated:
        return _mark(inner, marks)
    return next(
        (artifact for argument in (inner, *marks) if argument is not None and (artifact := _mark(argument))), None
    )


def files(section: BaseModel) -> Iterator[str]:
    """Paths of everything outside the pipeline that a section reads: what it names, and the user's own Python."""
    yield from (
        reference.value for reference in named(section) if reference.value and stage_of(reference.value) is None
    )
    for inner in sections(section):
        if isinstance(inner, ReadsFiles):
            yield from inner.files_read()
        if isinstance(inner, KindSection) and (location := Place.of(inner.kind)):
            yield str(location.file)


SectionT = TypeVar("SectionT", bound=BaseModel)


def located(section: SectionT, paths: Mapping[str, str]) -> SectionT:
    """The section with every `{name}` replaced by that stage's path; names without a path stay."""
    changes = {}
    for key, field in type(section).model_fields.items():
        before = getattr(section, key)
        after = _located(before, _mark(field.annotation, field.metadata), paths)
        if after != before:
            changes[key] = after
    return section.model_copy(update=changes) if changes else section


def _located(value: Any, mark: Artifact | None, paths: Mapping[str, str]) -> Any:
    if isinstance(value, BaseModel):
        return located(value, paths)
    if isinstance(value, Mapping):
        return {name: _located(inner, mark, paths) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_located(inner, mark, paths) for inner in value)
    return paths.get(stage_of(value) or "", value) if isinstance(value, str) and mark else value
