"""`groupwise keys`: every key of a recipe, from the docstrings of its fields; docs/recipe.md is the same text."""

import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, NamedTuple

import typer
from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from groupwise.cli.app import app, console, refuse
from groupwise.config import ReadIf, Section, toml_literal
from groupwise.config.schema import Artifact, held
from groupwise.errors import ConfigError

PLAIN: dict[Any, str] = {bool: "`true` or `false`", int: "whole number", float: "number", str: "text", Any: "anything"}
ARTIFACTS = {"model": "model", "reward_model": "reward model", "data": "file of data", "place": "path"}
BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt"), MinLen: ("at least", "min_length")}


@app.command()
def keys(
    section: Annotated[str | None, typer.Argument(help="A section, for example `optimizer`; default: all.")] = None,
    kind: Annotated[str | None, typer.Option(help="One kind of the section only.")] = None,
) -> None:
    """List what a recipe may hold: every key, its allowed values, its default and its meaning.

    Examples:

        groupwise keys optimizer

        groupwise keys data --kind generated
    """
    from rich.markdown import Markdown

    refuse("without a SECTION", kind=kind and not section)
    document = reference()
    console.print(Markdown(markdown(document, choose(document, section, kind) if section else document.headings)))


Choice = list[tuple[str, type[BaseModel]]]
"""Sections that a key may hold: (what chooses it, for example `kind = "math"`; its class). First, where there are
several, the class that all of them build on, chosen by nothing."""


class Heading(NamedTuple):
    """One section of the reference."""

    path: str
    chosen: str  # chooses this class among those that may stand here; empty where there is one
    model: type[BaseModel]
    base: type[BaseModel] | None = None  # documented before; only what differs from it is listed

    @property
    def title(self) -> str:
        place = f"`{self.path}`" if self.path else "A recipe"
        return f"{place} with `{self.chosen}`" if self.chosen else place


@dataclass(slots=True)
class Reference:
    """All sections; each class once, in its place nearest to the top."""

    places: dict[Any, Heading] = field(default_factory=dict)  # by class, its heading
    choices: dict[str, Choice] = field(default_factory=dict)  # by place, the sections that may stand there
    below: dict[Heading | None, list[Heading]] = field(default_factory=dict)
    """By heading, those of the sections in it; None: the top."""

    @property
    def headings(self) -> list[Heading]:
        return list(self._with_below(None))

    def _with_below(self, heading: Heading | None) -> Iterator[Heading]:
        for inner in self.below.get(heading, ()):
            yield inner
            yield from self._with_below(inner)

    def add(self, path: str, root: str, model: type[BaseModel], parent: Heading | None = None) -> None:
        """Document a class and what it holds, below `parent`; `root` chooses it, or the recipe it is in."""
        queue: list[tuple[Heading | None, str, str, type[BaseModel]]] = [(parent, path, root, model)]
        for parent, place, mark, section in queue:  # which grows
            if section in self.places:
                continue
            base = next((ancestor for ancestor in section.__mro__[1:] if ancestor in self.places), None)
            is_taken = any((known.path, known.chosen) == (place, mark) for known in self.places.values())
            chosen = parent.chosen or root if is_taken and parent else mark
            heading = self.places[section] = Heading(place, chosen, section, base)
            self.below.setdefault(parent, []).append(heading)
            for name, info in own_fields(section, base):
                if choice := choice_of(info):
                    inner = f"{place}.{name}" if place else name
                    inner += ".NAME" if typing.get_origin(info.annotation) is dict else ""
                    self.choices.setdefault(inner, choice)
                    queue += [(heading, inner, mark, option) for mark, option in choice]

    def of(self, choice: Choice) -> list[Heading]:
        return list(dict.fromkeys(self.places[model] for _, model in choice))


def reference() -> Reference:
    """Return the reference of everything that may be set."""
    from groupwise.pipeline import STAGES, PipelineRecipe
    from groupwise.pipeline.train import Train
    from groupwise.recall.config import RecallRecipe
    from groupwise.trainers import TRAINERS
    from groupwise.trainers.compare import Comparison
    from groupwise.verifiers import VerifierConfig
    from groupwise.verifiers.python import PythonConfig

    document = Reference()
    for name in TRAINERS.table:
        document.add("", f'algorithm = "{name}"', TRAINERS.find(name).recipe)
    document.add("", "[pipeline]", PipelineRecipe)
    for name in STAGES.table:
        if STAGES.find(name) is not Train:
            document.add("stages.NAME", f'kind = "{name}"', STAGES.find(name).Config)
    document.add("verifier", 'kind = "file.py:function"', PythonConfig, document.places[VerifierConfig])
    document.add("", "[variants]", Comparison)
    document.add("", "[sources]", RecallRecipe)
    return document


def own_fields(model: type[BaseModel], base: type[BaseModel] | None) -> list[tuple[str, FieldInfo]]:
    """Return a class's fields; with a base, those that differ from its."""
    inherited = base.model_fields if base else {}

    def facts(info: FieldInfo | None) -> tuple[Any, ...] | None:
        return None if info is None else (info.annotation, info.default, info.description, info.metadata)

    return [(name, info) for name, info in model.model_fields.items() if facts(info) != facts(inherited.get(name))]


def choice_of(info: FieldInfo) -> Choice | None:
    """Return the sections that a field may hold; None where it holds values."""
    if not (fields := list(held(info.annotation, [*info.metadata, info]))):
        return None
    common: type | None = fields[0].section
    if len(fields) == 1 and (kinds := fields[0].kinds):
        options: Choice = [(f'kind = "{kind}"', kinds.settings(kind)) for kind in kinds.table]
    else:
        models = [found.section for found in fields if found.section]
        if len(models) == 1:
            return [("", models[0])]
        options = [(tag(model), model) for model in models]
        common = next(base for base in models[0].__mro__ if all(issubclass(model, base) for model in models))
    is_shared = len(options) != 1 and common is not None and issubclass(common, Section) and common.model_fields
    return [("", common), *options] if is_shared and common else options


def tag(model: type[BaseModel]) -> str:
    """Return what says in a recipe that a section is of this class: its one key that has a single value."""
    for name, info in model.model_fields.items():
        if typing.get_origin(info.annotation) is typing.Literal and typing.get_args(info.annotation) == (info.default,):
            return f'{name} = "{info.default}"'
    return model.__name__


def allowed_values(annotation: Any, marks: Sequence[Any] = ()) -> str:
    """Return in words what a value may be."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if artifact := next((mark for mark in marks if isinstance(mark, Artifact)), None):
        return ARTIFACTS[artifact.makes]
    if origin is Annotated:
        return allowed_values(arguments[0], arguments[1:])
    if origin is typing.Literal:
        return ", ".join(f"`{toml_literal(value)}`" for value in arguments)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{toml_literal(member.value)}`" for member in annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(allowed_values(argument) for argument in arguments if argument is not types.NoneType)
    if origin in (list, tuple):
        inner = [allowed_values(argument) for argument in arguments if argument is not ...]
        if origin is tuple and ... not in arguments:
            return f"list of {len(inner)}: {', '.join(inner)}"
        return f"list: each {inner[0]}"
    if origin is dict:
        return f"table: {allowed_values(arguments[1])} by a name"
    bounds = [bound for mark in marks for bound in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    texts = [
        f" {sign} {getattr(bound, name):g}"
        for bound in bounds for kind, (sign, name) in BOUNDS.items() if isinstance(bound, kind)
    ]  # fmt: skip
    return PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation))) + " and".join(texts)


def markdown(document: Reference, headings: Sequence[Heading]) -> str:
    """Return the headings as a page."""
    lines: list[str] = []
    for heading in headings:
        lines += [f"## {heading.title}", "", _unwrap((heading.model.__doc__ or "").partition(">>>")[0])]
        if heading.base:
            title = document.places[heading.base].title
            lines += ["", f"Its keys are those of [{title}](#{_anchor(title)}); these are its own:"]
        fields = own_fields(heading.model, heading.base)
        lines += ["", *(f"- {_key(document, name, info)}" for name, info in fields), ""]
    return "\n".join(lines).rstrip() + "\n"


def _key(document: Reference, name: str, info: FieldInfo) -> str:
    when = next((f" Read only with {mark.when}." for mark in info.metadata if isinstance(mark, ReadIf)), "")
    text = f"{_unwrap(info.description or '')}{when}"
    if choice := choice_of(info):
        first, *others = document.of(choice)
        links = ", ".join(f"[{place.title}](#{_anchor(place.title)})" for place in (first, *others[:3]))
        suffix = f" and {len(others) - 3} more below it" if len(others) > 3 else ""
        given = info.default.model_dump(exclude_unset=True) if isinstance(info.default, Section) else {}
        usual = ", ".join(_code(f"{key} = {toml_literal(value)}") for key, value in given.items())
        return f"**`{name}`** (section): {text} See {links}{suffix}.{usual and f' Keys left out: {usual}.'}"
    default = "required"
    if not info.is_required():
        value = info.get_default(call_default_factory=True)
        literal = list(value) if isinstance(value, tuple | set | frozenset) else getattr(value, "value", value)
        default = "not set" if literal is None else f"default `{toml_literal(literal)}`"
    return f"**`{name}`** ({allowed_values(info.annotation, info.metadata)}; {default}): {text}"


def _code(text: str) -> str:
    return f"```` {text} ````" if "`" in text else f"`{text}`"


def _unwrap(text: str) -> str:
    return " ".join(text.split())


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def choose(document: Reference, section: str, kind: str | None) -> list[Heading]:
    """Return the headings of a section, or of one of its kinds.

    Raises ConfigError: there is none; names those there are.
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
