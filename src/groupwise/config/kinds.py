"""Parts of a recipe that are chosen by name: `kind = "math"`, or the user's own Python.

    [verifier]
    kind = "math"                     # built in
    kind = "rewards.py:reward"        # the user's file, beside the recipe or in the working directory
    kind = "my_package.rewards:exact" # an importable module
    kind = "exact"                    # a name that an installed package registers (entry point)

An implementation owns its settings: it is a `KindSection` itself (a formula with dials), or a class whose attribute
`Config` is one. `Annotated[Base, KINDS]` makes a recipe's field of them: the section is read by the class of its kind,
so a key that another kind reads is refused by name.
"""

import ast
import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from pydantic import GetCoreSchemaHandler, SerializationInfo, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from groupwise.config import FOLDER, Section
from groupwise.errors import ConfigError, GroupwiseError


class KindSection(Section):
    """A section that is chosen by its kind."""

    kind: str
    """Which one: a built-in name, `file.py:name`, `package.module:name`, or a name of an installed package."""


@dataclass(frozen=True, slots=True)
class Place:
    """The user's own Python: `file.py:name`, or `package.module:name` of what can be imported."""

    file: Path
    name: str
    module: str = ""
    """The module's name, where it is imported by that."""

    @classmethod
    def of(cls, kind: str) -> "Place | None":
        """The place that a kind names; None where it names none."""
        file, separator, name = kind.rpartition(":")
        return cls(Path(file), name) if separator and file.endswith(".py") else None

    @classmethod
    def importable(cls, kind: str) -> "Place":
        """The place that `package.module:name` means.

        Raises:
            ConfigError: there is no such module.
        """
        module, _, name = kind.partition(":")
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{kind} cannot be imported: {error}") from None
        if spec is None or spec.origin is None:
            raise ConfigError(f"{kind} cannot be imported: there is no module {module!r}")
        return cls(Path(spec.origin), name, module)

    def __str__(self) -> str:
        return f"{self.module or self.file}:{self.name}"

    def definition(self) -> ast.stmt | None:
        """The statement that makes the name, read without running the file; None where that cannot be seen.

        Raises:
            ConfigError: the file is not there or is no Python.
        """
        for statement in reversed(_parsed(self.file).body):
            if self.name in _names(statement):
                return statement
        return None

    def load(self) -> Any:
        """The object, after running the file in this process.

        Raises:
            ConfigError: the file cannot be run, or has no such name; says which it has.
        """
        _parsed(self.file)  # says what is wrong with it before it runs
        module = _run(self.file.resolve(), self.module)
        if not hasattr(module, self.name):
            raise ConfigError(f"{self.file} has no {self.name!r}; {_offered(module, self.name)}")
        return getattr(module, self.name)


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {file} (it is looked for beside the recipe, then here)") from None
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{file} is not readable Python: {error}") from None


def _names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@cache
def _run(file: Path, name: str) -> ModuleType:
    try:
        return importlib.import_module(name) if name else _run_file(file)
    except GroupwiseError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error


_FOLDERS: set[Path] = set()
"""Folders of the user's files that were run."""


def _run_file(file: Path) -> ModuleType:
    name = f"groupwise_user_{file.stem}_{abs(hash(file)):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    for near in file.parent.glob("*.py"):  # another folder's neighbour of this name is not this one's
        other = sys.modules.get(near.stem)
        if other and Path(getattr(other, "__file__", None) or "").parent in _FOLDERS - {file.parent}:
            del sys.modules[near.stem]
    _FOLDERS.add(file.parent)
    sys.path.insert(0, str(file.parent))  # its neighbours come first while it is imported
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    if str(file.parent) not in sys.path:  # from now on last, so that none of them hides a library
        sys.path.append(str(file.parent))
    return module


def _offered(module: ModuleType, name: str) -> str:
    own = [
        n for n, x in vars(module).items() if not n.startswith("_") and getattr(x, "__module__", "") == module.__name__
    ]
    nearest = difflib.get_close_matches(name, own, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(own) or 'nothing of its own'}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Condition on a user's implementation."""

    holds: Callable[[Any], bool]
    words: str
    """As in `allowed is ...`."""


def _owns_settings(implementation: Any) -> bool:
    return isinstance(implementation, type) and (
        issubclass(implementation, KindSection) or hasattr(implementation, "Config")
    )


def _builds_on(base: type) -> Allowed:
    return Allowed(
        lambda implementation: isinstance(implementation, type) and issubclass(implementation, base),
        f"a class that builds on {base.__name__}",
    )


SECTION = Allowed(_owns_settings, "a class that is a KindSection or has one as its attribute Config")


class Choices:
    """Implementations by name: built in, or the user's own. Nothing is imported before it is chosen."""

    def __init__(
        self,
        what: str,
        table: Mapping[str, str],
        adopt: Callable[[Place], Any] | None = None,
        allowed: Allowed = SECTION,
    ) -> None:
        """Name the part.

        Args:
            what: the part in words, as in `there is no verifier 'x'`; its entry points are in `groupwise.<what>`.
            table: `package.module:name` of every built-in implementation.
            adopt: makes an implementation from the user's Python; by default it is run and taken as it is.
            allowed: what an implementation that is not built in must be.
        """
        self.what, self.table, self._allowed = what, dict(table), allowed
        self._adopt = adopt or Place.load
        self.group = "groupwise." + what.replace(" ", "_")

    def find(self, kind: str) -> Any:
        """The implementation of a kind.

        Raises:
            ConfigError: there is no such kind, with the nearest name; or the user's file is at fault, with the reason.
        """
        if kind in self.table:
            return _imported(self.table[kind])
        if location := Place.of(kind):
            return self._checked(kind, self._adopt(location))
        if registered := {point.name: point for point in entry_points(group=self.group)}.get(kind):
            return self._checked(kind, self._adopt(Place.importable(registered.value)))
        if ":" in kind:
            return self._checked(kind, self._adopt(Place.importable(kind)))
        raise ConfigError(f"there is no {self.what} {kind!r}; {self._known(kind)}")

    def _checked(self, kind: str, implementation: Any) -> Any:
        if not self._allowed.holds(implementation):
            raise ConfigError(f"{kind} is no {self.what}: allowed is {self._allowed.words}")
        return implementation

    def _known(self, kind: str) -> str:
        nearest = difflib.get_close_matches(kind, self.table, n=1, cutoff=0.6)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        return f"{hint}known are {', '.join(sorted(self.table))}, and file.py:name for your own"


class Kinds(Choices):
    """Implementations that a section of a recipe chooses by its `kind`."""

    def __init__(
        self,
        what: str,
        table: Mapping[str, str],
        default: str | None = None,
        adopt: Callable[[Place], Any] | None = None,
        base: type[KindSection] | None = None,
    ) -> None:
        """Name the part, as `Choices` does.

        Args:
            what: the part in words.
            table: `package.module:name` of every built-in implementation.
            default: the kind of a section that names none; None: it must name one.
            adopt: makes an implementation from the user's Python.
            base: the class that every implementation builds on, where it is its own settings.
        """
        super().__init__(what, table, adopt, _builds_on(base) if base else SECTION)
        self.default = default

    def settings(self, kind: str, folder: Path | None = None) -> type[KindSection]:
        """The class of a kind's settings; a file is looked for in the folder first."""
        implementation = self.find(beside(kind, folder))
        settings: type[KindSection] = (
            implementation if issubclass(implementation, KindSection) else implementation.Config
        )
        return settings

    def kind_of(self, value: Any) -> str | None:
        """The kind that a section of a recipe names, written as a table or as the name alone."""
        kind = value.get("kind", self.default) if isinstance(value, Mapping) else getattr(value, "kind", value)
        return kind if isinstance(kind, str) else None

    def kinds_with(self, key: str) -> list[str]:
        """Built-in kinds that read a key."""
        return [kind for kind in self.table if key in self.settings(kind).model_fields]

    def read(self, value: Any, context: Mapping[str, Any] = MappingProxyType({})) -> KindSection:
        """A section from a table, or from the name of a kind alone; `context` is that of the validation.

        Raises:
            ConfigError: there is no such kind.
            ValidationError: a value cannot be used.
        """
        if isinstance(value, KindSection):
            return value
        kind = self.kind_of(value)
        if kind is None or not isinstance(value, Mapping | str):
            raise ConfigError(f"kind is missing; known are {', '.join(sorted(self.table))}, and file.py:name")
        folder = context.get(FOLDER)
        table = {**(value if isinstance(value, Mapping) else {}), "kind": beside(kind, folder)}
        return self.settings(kind, folder).model_validate(table, context=dict(context))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: Any, info: ValidationInfo) -> KindSection:
            try:
                return self.read(value, info.context or {})
            except ConfigError as error:
                raise ValueError(str(error)) from error

        def dump(section: KindSection, info: SerializationInfo) -> dict[str, Any]:
            return section.model_dump(mode=info.mode, exclude_none=info.exclude_none)

        return core_schema.with_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(dump, info_arg=True)
        )


@cache
def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def beside(path: str, folder: Path | None) -> str:
    """A relative path of a recipe: the file beside the recipe where there is one, else as in the working directory.

    `path` may be `file.py:name`, of which the file counts.

    Raises:
        ConfigError: both are there and differ.
    """
    location = Place.of(path)
    file = location.file if location else Path(path)
    if folder is None or file.is_absolute() or (location is None and ":" in path):
        return path
    near = folder / file
    if not near.exists() or near.resolve() == file.resolve():
        return path
    if file.exists():
        raise ConfigError(f"{file} may mean {near} or {file.resolve()}: write the whole path of the one that is meant")
    return f"{near}:{location.name}" if location else str(near)


def user_files(recipe: Section) -> list[Path]:
    """The files of the user's own Python that a recipe names anywhere, with those beside them that they import."""
    files: dict[Path, None] = {}
    for value in _texts(recipe.model_dump(mode="json")):
        location = Place.of(value)
        if location and location.file.is_file():
            files |= dict.fromkeys(written_in(location.file))
    return list(files)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def written_in(file: Path, visited: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """A file and the files beside it that it imports, and those that they import."""
    files = (*visited, file)
    for node in ast.walk(_parsed(file)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            beside_it = file.parent / Path(*name.split("."))
            for near in (beside_it.with_suffix(".py"), beside_it / "__init__.py"):
                if near.is_file() and near not in files:
                    files = written_in(near, files)
    return files
