"""`groupwise keys`: every key of a recipe, from the docstrings of its fields; docs/recipe.md is the same text."""

import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from groupwise.config import ReadIf, Section, toml_literal
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.schema import Artifact
from groupwise.errors import ConfigError
from groupwise.evaluation.comparison import Comparison
from groupwise.pipeline import STAGES, PipelineRecipe
from groupwise.pipeline.train import Train
from groupwise.recall.recipe import RecallRecipe
from groupwise.trainers import TRAINERS

INTRO = """# Every key of a recipe

Written by `groupwise keys --write docs/recipe.md` from the docstrings of the fields; `groupwise keys loss` prints one
section of it, `groupwise keys data --kind jsonl` one kind of a section.

A recipe is a TOML file. `extends = ["other.toml"]` lays it over other recipes, whose paths are relative to it.
`--set section.key=value` changes a key on the command line. A key that nothing reads is refused, and so is a value
without effect. Wherever a `kind` or an `algorithm` is read, `"my_file.py:name"` loads your own.
"""
PLAIN: dict[Any, str] = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Any: "anything"}
CONTAINERS = (list, tuple)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a key holds that is a section: one class, or one of several."""

    options: tuple[tuple[str, type[BaseModel]], ...]
    """(what chooses it, for example `kind = "math"`; its class)."""
    common: type[BaseModel] | None = None
    """What all of them are, where it has keys of its own."""

    @property
    def all(self) -> tuple[tuple[str, type[BaseModel]], ...]:
        """What they have in common, where there are several, and the options."""
        has_common = self.common is not None and len(self.options) > 1
        return (("", self.common), *self.options) if has_common and self.common else self.options


@dataclass(frozen=True, slots=True)
class Heading:
    """One section of the reference."""

    path: str
    chosen: str
    """What chooses this class among those that may stand here; empty where there is one."""
    model: type[BaseModel]
    base: type[BaseModel] | None = None
    """Documented before; only what differs from it is listed."""

    @property
    def title(self) -> str:
        return " with ".join(
            [f"`{self.path}`" if self.path else "A recipe", *([f"`{self.chosen}`"] * bool(self.chosen))]
        )


@dataclass(slots=True)
class Reference:
    """All sections; each class once, in its place nearest to the top."""

    places: dict[Any, Heading] = field(default_factory=dict)
    """Where each class is documented."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """What may stand at each place."""
    below: dict[Heading | None, list[Heading]] = field(default_factory=dict)
    """What a section holds, and the top."""

    @property
    def headings(self) -> list[Heading]:
        """All sections, each followed by what it holds."""
        return list(self._with_below(None))

    def _with_below(self, heading: Heading | None) -> Iterator[Heading]:
        for inner in self.below.get(heading, ()):
            yield inner
            yield from self._with_below(inner)

    def add(self, path: str, root: str, model: type[BaseModel]) -> None:
        """Document a class and what it holds; `root` chooses it, or the recipe it is in."""
        queue: list[tuple[Heading | None, str, str, type[BaseModel]]] = [(None, path, root, model)]
        for parent, place, mark, section in queue:  # which grows
            if section in self.places:
                continue
            heading = self._claim(place, mark, section, root)
            self.below.setdefault(parent, []).append(heading)
            for name, info in own_fields(section, heading.base):
                if choice := choice_of(info):
                    inner = (f"{place}.{name}" if place else name) + (
                        ".NAME" if typing.get_origin(info.annotation) is dict else ""
                    )
                    self.choices.setdefault(inner, choice)
                    queue += [(heading, inner, mark, option) for mark, option in choice.all]

    def _claim(self, path: str, mark: str, model: type[BaseModel], root: str) -> Heading:
        base = next((parent for parent in model.__mro__[1:] if parent in self.places), None)
        is_taken = any((heading.path, heading.chosen) == (path, mark) for heading in self.places.values())
        self.places[model] = Heading(path, root if is_taken else mark, model, base)
        return self.places[model]

    def of(self, choice: Choice) -> list[Heading]:
        """Where what a key may hold is documented."""
        return list(dict.fromkeys(self.places[model] for _, model in choice.all))


def reference() -> Reference:
    """The reference of everything that may be set."""
    document = Reference()
    for name in TRAINERS.table:
        root = f'algorithm = "{name}"'
        document.add("", root, TRAINERS.find(name).recipe)
    document.add("", "[pipeline]", PipelineRecipe)
    for name in STAGES.table:
        if STAGES.find(name) is not Train:
            document.add("stages.NAME", f'kind = "{name}"', STAGES.find(name).Config)
    document.add("", "[variants]", Comparison)
    document.add("", "[sources]", RecallRecipe)
    return document


def own_fields(model: type[BaseModel], base: type[BaseModel] | None) -> list[tuple[str, FieldInfo]]:
    """A class's fields; with a base, those that differ from its."""
    inherited = base.model_fields if base else {}

    def facts(info: FieldInfo | None) -> tuple[Any, ...] | None:
        return None if info is None else (info.annotation, info.default, info.description, info.metadata)

    return [(name, info) for name, info in model.model_fields.items() if facts(info) != facts(inherited.get(name))]


def choice_of(info: FieldInfo) -> Choice | None:
    """The sections that a field may hold; None where it holds values."""
    return _choice(info.annotation, [*info.metadata, info])


def _choice(annotation: Any, marks: Sequence[Any]) -> Choice | None:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if kinds := next((mark for mark in marks if isinstance(mark, Kinds)), None):
        common = annotation if isinstance(annotation, type) and issubclass(annotation, KindSection) else None
        return Choice(tuple((f'kind = "{kind}"', kinds.settings(kind)) for kind in kinds.table), common)
    if origin is typing.Annotated:
        return _choice(arguments[0], arguments[1:])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return Choice((("", annotation),))
    if origin is dict or origin in CONTAINERS:
        return _choice(arguments[-1] if origin is dict else arguments[0], ())
    if origin in (typing.Union, types.UnionType):
        inner = [choice for argument in arguments if (choice := _choice(argument, ()))]
        options = tuple(option for choice in inner for option in choice.options)
        if len(options) <= 1:
            return inner[0] if inner else None
        return Choice(tuple((mark or _tag(model), model) for mark, model in options), _common(options))
    return None


def _tag(model: type[BaseModel]) -> str:
    """What says in a recipe that a section is of this class: its one key that has a single value."""
    for name, info in model.model_fields.items():
        if typing.get_origin(info.annotation) is typing.Literal and typing.get_args(info.annotation) == (info.default,):
            return f'{name} = "{info.default}"'
    return model.__name__


def _common(options: Sequence[tuple[str, type[BaseModel]]]) -> type[BaseModel] | None:
    first, *others = (model for _, model in options)
    shared = (ancestor for ancestor in first.__mro__ if all(issubclass(model, ancestor) for model in others))
    base = next(shared, None)
    return base if base and issubclass(base, Section) and base.model_fields else None


def allowed_values(annotation: Any, marks: Sequence[Any] = ()) -> str:
    """What a value may be, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if artifact := next((mark for mark in marks if isinstance(mark, Artifact)), None):
        return {"model": "model", "reward_model": "reward model", "data": "file of data"}[artifact.makes]
    if origin is typing.Annotated:
        return allowed_values(arguments[0], arguments[1:])
    if origin is typing.Literal:
        return ", ".join(f"`{toml_literal(value)}`" for value in arguments)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{toml_literal(member.value)}`" for member in annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(allowed_values(argument) for argument in arguments if argument is not types.NoneType)
    if origin in CONTAINERS:
        inner = [allowed_values(argument) for argument in arguments if argument is not ...]
        if origin is tuple and ... not in arguments:
            return f"list of {len(inner)}: {', '.join(inner)}"
        return f"list: each {inner[0]}"
    if origin is dict:
        return f"table: {allowed_values(arguments[1])} by a name"
    return PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation))) + _bounds(marks)


def _bounds(marks: Sequence[Any]) -> str:
    signs = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt"), MinLen: ("at least", "min_length")}
    bounds = [bound for mark in marks for bound in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    texts = [
        f" {sign} {getattr(mark, name):g}" for mark in bounds for kind, (sign, name) in signs.items()
        if isinstance(mark, kind)
    ]  # fmt: skip
    return " and".join(texts)


def markdown(document: Reference, headings: Sequence[Heading]) -> str:
    """The headings as a page."""
    return "\n".join(line for heading in headings for line in _section(document, heading)).rstrip() + "\n"


def _section(document: Reference, heading: Heading) -> Iterator[str]:
    yield from (f"## {heading.title}", "", _unwrap((heading.model.__doc__ or "").partition(">>>")[0]))
    if heading.base:
        base = document.places[heading.base]
        yield from ("", f"Its keys are those of [{base.title}](#{_anchor(base.title)}); these are its own:")
    yield ""
    for name, info in own_fields(heading.model, heading.base):
        yield f"- {_key(document, heading, name, info)}"
    yield ""


def _key(document: Reference, heading: Heading, name: str, info: FieldInfo) -> str:
    when = next((f" Read only with {mark.when}." for mark in info.metadata if isinstance(mark, ReadIf)), "")
    text = f"{_unwrap(info.description or '')}{when}"
    if choice := choice_of(info):
        first, *others = document.of(choice)
        links = ", ".join(f"[{place.title}](#{_anchor(place.title)})" for place in (first, *others[:3]))
        suffix = f" and {len(others) - 3} more below it" if len(others) > 3 else ""
        return f"**`{name}`** (section): {text} See {links}{suffix}."
    default = "required" if info.is_required() else _default(info)
    return f"**`{name}`** ({allowed_values(info.annotation, info.metadata)}; {default}): {text}"


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    literal = list(value) if isinstance(value, tuple | set | frozenset) else getattr(value, "value", value)
    return "not set" if literal is None else f"default `{toml_literal(literal)}`"


def _unwrap(text: str) -> str:
    return " ".join(text.split())


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def choose(document: Reference, section: str, kind: str | None) -> list[Heading]:
    """The headings of a section, or of one of its kinds.

    Raises:
        ConfigError: there is none; says which there are.
    """
    headings = [
        heading for heading in document.headings if section in (heading.path, heading.path.removesuffix(".NAME"))
    ]
    choices = [choice for path, choice in document.choices.items() if section in (path, path.removesuffix(".NAME"))]
    headings = headings or [heading for choice in choices for heading in document.of(choice)]
    if not headings:
        names = ", ".join(dict.fromkeys(heading.path for heading in document.headings if heading.path))
        raise ConfigError(f"there is no section {section!r}; there are {names}")
    of_kind = [heading for heading in headings if kind is None or f'"{kind}"' in heading.chosen]
    if not of_kind:
        kinds = ", ".join(heading.chosen for heading in headings if heading.chosen) or "none"
        raise ConfigError(f"{section} has no kind {kind!r}; it has {kinds}")
    return of_kind


def page() -> str:
    """The whole document."""
    document = reference()
    return f"{INTRO}\n{markdown(document, document.headings)}"
