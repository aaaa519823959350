"""Python of the user's own that a recipe names: `file.py:name`, or `package.module:name` of what can be imported."""

import ast
import codecs
import difflib
import glob
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from groupwise.errors import ConfigError, GroupwiseError, told_as

RECIPES = Path(__file__).parents[1] / "recipes"
"""Folder of the shipped recipes. In the repository `recipes` is a link to it."""


def expanded(path: str) -> str:
    """Return a path with the home directory in place of `~` or `~user`. Raises ConfigError: there is no such user."""
    whole = os.path.expanduser(path)
    if whole.startswith("~"):
        user = whole.partition("/")[0]
        raise ConfigError(f"{path}: {user} has no home directory here; a file of that name is ./{path}")
    return whole


def decoded(content: bytes) -> str:
    """Return the text of a file that a user wrote: UTF-8, with or without a byte order mark.

    Raises UnicodeDecodeError: it is something else; the marks of UTF-16 and UTF-32 are named.
    """
    marks = {codecs.BOM_UTF32_LE: 32, codecs.BOM_UTF32_BE: 32, codecs.BOM_UTF16_LE: 16, codecs.BOM_UTF16_BE: 16}
    for mark, width in marks.items():
        if content.startswith(mark):
            reason = f"it begins with the byte order mark of UTF-{width}; save it as UTF-8"
            raise UnicodeDecodeError("utf-8", content, 0, len(mark), reason)
    return content.removeprefix(codecs.BOM_UTF8).decode()


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a file of Python."""

    file: Path
    name: str
    module: str = ""
    """The module's name, where it is imported by that."""

    @classmethod
    def of(cls, kind: str) -> "Place | None":
        """Return the place that `file.py:name` means; None for any other text."""
        file, separator, name = kind.rpartition(":")
        return cls(Path(file), name) if separator and file.endswith(".py") else None

    @classmethod
    def importable(cls, kind: str) -> "Place":
        """Return the place that `package.module:name` means. Raises ConfigError: there is no such module."""
        module, _, name = kind.partition(":")
        with told_as(ConfigError, f"{kind} cannot be imported", ImportError, ValueError):
            spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ConfigError(f"{kind} cannot be imported: there is no module {module!r}")
        return cls(Path(spec.origin), name, module)

    def __str__(self) -> str:
        return f"{self.module or self.file}:{self.name}"

    def definition(self) -> ast.stmt | None:
        """Return the statement that makes the name, without running the file; None where it cannot be seen.

        Raises ConfigError: the file does not exist or is not Python.
        """
        for statement in reversed(_parsed(self.file).body):
            if self.name in _names(statement):
                return statement
        return None

    def load(self) -> Any:
        """Run the file in this process and return the object.

        Raises ConfigError: the file cannot be run, or has no such name.
        """
        _parsed(self.file)  # an error of the file is reported before anything runs
        module = _run(self.file.resolve(), self.module)
        if not hasattr(module, self.name):
            defined = [
                name for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
            ]  # fmt: skip
            nearest = difflib.get_close_matches(self.name, defined, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"it defines {', '.join(defined) or 'nothing'}"
            raise ConfigError(f"{self.file} has no {self.name!r}; {hint}")
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


FOLDERS: set[Path] = set()
"""Folders of the user's files that were run."""


def _run_file(file: Path) -> ModuleType:
    imported = sys.modules.get(file.stem)
    if imported and Path(getattr(imported, "__file__", None) or "").resolve() == file:
        return imported  # by a neighbour: its classes are these
    name = f"groupwise_user_{file.stem}_{abs(hash(file)):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    for near in file.parent.glob("*.py"):  # another folder's neighbour of this name is not this one's
        other = sys.modules.get(near.stem)
        if other and Path(getattr(other, "__file__", None) or "").parent in FOLDERS - {file.parent}:
            del sys.modules[near.stem]
    FOLDERS.add(file.parent)
    sys.path.insert(0, str(file.parent))  # its neighbours come first while it is imported
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    if str(file.parent) not in sys.path:  # from now on last, so that none of them hides a library
        sys.path.append(str(file.parent))
    return module


def beside(path: str, folder: Path | None) -> str:
    """Return a recipe's relative path: the file beside the recipe where there is one, else as in the working directory.

    `path` may be `file.py:name`, of which the file counts; such a file may also be shipped with the recipes.

    Raises:
        ConfigError: both files exist and differ.
    """
    path = expanded(path)
    location = Place.of(path)
    file = location.file if location else Path(path)
    if location and not file.exists() and not (folder or Path()).joinpath(file).exists() and (RECIPES / file).exists():
        return f"{RECIPES / file}:{location.name}"
    if folder is None or file.is_absolute() or (location is None and ":" in path):
        return path
    near = folder / file
    if not is_there(near) or near.resolve() == file.resolve():
        return path
    if is_there(file):
        raise ConfigError(f"{file} may mean {near} or {file.resolve()}: write the whole path of the one that is meant")
    return f"{near}:{location.name}" if location else str(near)


def is_there(path: Path) -> bool:
    """Return whether there is a file or, for a pattern of names, one that fits; unlike Path.exists it never raises."""
    return os.path.exists(path) or (glob.has_magic(str(path)) and bool(glob.glob(str(path), recursive=True)))


def written_in(file: Path, visited: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return a file, the files beside it or in its own package that it imports, and those that they import."""
    files, folders = (*visited, file), [file.parent]
    while (folders[-1] / "__init__.py").is_file():
        folders.append(folders[-1].parent)
    for node in ast.walk(_parsed(file)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name}" for name in names)]
        for stem in (folder.joinpath(*name.split(".")) for name in names for folder in folders):
            for near in (stem.with_suffix(".py"), stem / "__init__.py"):
                if near.is_file() and near not in files:
                    files = written_in(near, files)
    return files
