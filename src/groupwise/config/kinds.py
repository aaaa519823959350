"""Sections of a recipe, and parts of it that are chosen by name: `kind = "math"`, or the user's own Python.

    [verifier]
    kind = "math"                     # built in
    kind = "rewards.py:reward"        # the user's file, beside the recipe or in the working directory
    kind = "my_package.rewards:exact" # an importable module
    kind = "exact"                    # a name that an installed package registers (entry point)

An implementation owns its settings: it is a `KindSection` itself (a formula with dials), or a class whose attribute
`Config` is one. `Annotated[Base, KINDS]` makes a recipe's field of them: the section is read by the class of its kind,
so a key that another kind reads is refused by name.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SerializationInfo, ValidationInfo, model_validator
from pydantic_core import CoreSchema, core_schema

from groupwise.config.places import RECIPES, Place, beside
from groupwise.errors import ConfigError

FOLDER = "folder"
"""Key of a validation's context: the folder of the recipe that is read; files are looked for there first."""
ARTIFACTS = "artifacts"
"""Key of a validation's context: paths by the names that may stand for them, as `{base}` in a pipeline."""


@dataclass(frozen=True, slots=True)
class ReadIf:
    """Mark of a field that is read under a condition only: another value than its default is an error elsewhere.

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

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False,
        ser_json_inf_nan="constants",
    )  # fmt: skip

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            for mark in field.metadata:
                if isinstance(mark, ReadIf) and value != field.get_default() and not mark.holds(self):
                    raise ValueError(f"{name} = {value!r} has no effect here: it is read only with {mark.when}")
        return self


class KindSection(Section):
    """A section that is chosen by its kind."""

    kind: str
    """A built-in name, `file.py:name`, `package.module:name`, or a name of an installed package."""


class Allowed(NamedTuple):
    """Condition on a user's implementation."""

    holds: Callable[[Any], bool]
    words: str
    """As in `allowed is ...`."""


class Choices:
    """Implementations by name: built in, or the user's own. Nothing is imported before it is chosen."""

    def __init__(self, what: str, table: Mapping[str, str], adopt: str = "", allowed: Allowed | None = None) -> None:
        """Name the part.

        Args:
            what: the part in words, as in `there is no verifier 'x'`; its entry points are in `groupwise.<what>`.
            table: `package.module:name` of every built-in implementation, or `file.py:name` among the shipped recipes.
            adopt: `package.module:name` of a function that makes an implementation of a `Place`; by default the user's
                Python is run and taken as it is.
            allowed: what an implementation that is not built in must be.
        """
        self.what, self.table, self._allowed = what, dict(table), allowed
        self._adopt = adopt
        self.group = "groupwise." + what.replace(" ", "_")

    def find(self, kind: str) -> Any:
        """Return the implementation of a kind.

        Raises:
            ConfigError: there is no such kind, with the nearest name; or the user's file is at fault, with the reason.
        """
        if kind in self.table:
            return _imported(self.table[kind])
        if (location := Place.of(kind)) is None:
            registered = {point.name: point.value for point in entry_points(group=self.group)}.get(kind)
            target = registered or (kind if ":" in kind else None)
            location = Place.importable(target) if target else None
        if location is None:
            nearest = difflib.get_close_matches(kind, self.table, n=1, cutoff=0.6)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            names = f"{hint}known are {', '.join([*sorted(self.table), 'file.py:name'])} for your own"
            raise ConfigError(f"there is no {self.what} {kind!r}; {names}")
        implementation = _imported(self._adopt)(location) if self._adopt else location.load()
        if self._allowed and not self._allowed.holds(implementation):
            raise ConfigError(f"{kind} is no {self.what}: allowed is {self._allowed.words}")
        if missing := getattr(implementation, "__abstractmethods__", ()):
            raise ConfigError(f"{kind} is no {self.what}: it has no {', '.join(sorted(missing))}")
        return implementation


class Kinds(Choices):
    """Implementations that a section of a recipe chooses by its `kind`."""

    def __init__(self, what: str, table: Mapping[str, str], default: str | None = None, adopt: str = "") -> None:
        """Name the part, as `Choices` does; `default` is the kind of a section that names none: None where it must."""
        super().__init__(what, table, adopt)
        self.default = default

    def settings(
        self, kind: str, folder: Path | None = None, base: type[KindSection] = KindSection
    ) -> type[KindSection]:
        """Return the class of a kind's settings; a file is looked for in the folder first.

        Raises ConfigError: no such kind, or its settings do not build on `base`.
        """
        implementation = self.find(beside(kind, folder))
        for settings in (implementation, getattr(implementation, "Config", None)):
            if isinstance(settings, type) and issubclass(settings, base):
                return settings
        raise ConfigError(
            f"{kind} is no {self.what}: allowed is a class that builds on {base.__name__}, or whose Config does"
        )

    def kind_of(self, value: Any) -> str | None:
        """Return the kind that a section of a recipe names, written as a table or as the name alone."""
        kind = value.get("kind", self.default) if isinstance(value, Mapping) else getattr(value, "kind", value)
        return kind if isinstance(kind, str) else None

    def read(
        self, value: Any, context: Mapping[str, Any] = MappingProxyType({}), base: type[KindSection] = KindSection
    ) -> Any:
        """Read a section from a table, or from the name of a kind alone; `context` is that of the validation.

        Raises ConfigError: no such kind, or its settings do not build on `base`; ValidationError: a value is at fault.
        """
        if isinstance(value, KindSection):
            return value
        kind = self.kind_of(value)
        if kind is None or not isinstance(value, Mapping | str):
            given = value.get("kind") if isinstance(value, Mapping) else value
            fault = "is missing" if given is None else f"= {given!r} is no text"
            raise ConfigError(f"kind {fault}; known are {', '.join(sorted(self.table))}, and file.py:name")
        folder = context.get(FOLDER)
        table = {**(value if isinstance(value, Mapping) else {}), "kind": beside(kind, folder)}
        settings = self.settings(kind, folder, base)
        return settings.model_validate(table, context=dict(context))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, info: ValidationInfo) -> Any:
            try:
                return self.read(value, info.context or {}, source)
            except ConfigError as error:
                raise ValueError(str(error)) from error

        def dump(section: KindSection, info: SerializationInfo) -> dict[str, Any]:
            return section.model_dump(mode=info.mode, exclude_none=info.exclude_none)

        return core_schema.with_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(dump, info_arg=True)
        )


@cache
def _imported(target: str) -> Any:
    if shipped := Place.of(target):
        return Place(RECIPES / shipped.file, shipped.name).load()
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
