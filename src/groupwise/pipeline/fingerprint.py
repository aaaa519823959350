"""The fingerprint of a stage: 16 hex digits of its settings, its inputs and the code that computes its result.

The code is what the stage's module imports, and what that imports in turn, each file as its syntax: comments,
docstrings, line breaks and line numbers do not count. Of parts that are chosen by kind, those count that the
settings or the code name. A table (`.toml`) that a file names and that lies beside it counts as it is.
"""

import ast
import hashlib
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import groupwise
from groupwise.config.kinds import Choices
from groupwise.config.places import RECIPES, Place

ROOT = Path(groupwise.__file__).parent
TABLES = "groupwise.config.kinds"
"""Every module with a table of kinds imports from here."""
_MODULE = re.compile(r"groupwise(?:\.\w+)+")
_DATA = re.compile(r"\w+\.toml").fullmatch


def fingerprint(settings: Mapping[str, Any], inputs: Mapping[str, str], code: str) -> str:
    """Return the fingerprint of work with these settings, on inputs with these fingerprints, by this code."""
    whole = json.dumps({"settings": settings, "inputs": dict(inputs), "code": code}, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def code_of(module: str, settings: Any) -> str:
    """Return the version of the code of a module with these settings, the user's Python included."""
    names = set(_texts(settings))
    locations = [location for name in names if (location := Place.of(name)) is not None and location.file.is_file()]
    groups = [entry_points(group=group) for group in entry_points().groups if group.startswith("groupwise.")]
    registered = [point.value for group in groups for point in group if point.name in names]
    modules = [name.partition(":")[0] for name in (*registered, *names) if re.fullmatch(r"[\w.]+:\w+", name)]
    return code_version([module, *modules], [location.file for location in locations], names)


def code_version(modules: Iterable[str], files: Iterable[Path] = (), chosen: Iterable[str] = ()) -> str:
    """Return 16 hex digits of the source of modules and files, and of their imports from this or their own package."""
    sources: dict[str, _Source] = {}
    waiting = [_File(path.stem, path) for path in files]
    waiting += [file for name in modules if (file := _module(name)) is not None]
    names, data = set(chosen), set[Path]()
    while waiting:
        fresh = {file: _source(file.name, file.path.name == "__init__.py", file.path.read_bytes()) for file in waiting}
        sources |= {file.name: source for file, source in fresh.items()}
        names = names.union(*(source.texts for source in fresh.values()))
        named = [file.path.parent / text for file, source in fresh.items() for text in source.texts if _DATA(text)]
        data |= {path for path in named if path.is_file()}
        tables = [name for name, source in sources.items() if source.has_tables and "." in name]
        needed = {_near(name, file) for file, source in fresh.items() for name in source.imports}
        needed |= {part for table in tables for kind, part in _kinds(table) if kind in names}
        waiting = [file for file in needed if file is not None and file.name not in sources]
    lines = "".join(f"{name}:{sources[name].digest}\n" for name in sorted(sources))
    lines += "".join(f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in sorted(data))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


class _File(NamedTuple):
    """A module and its file."""

    name: str
    path: Path

    @property
    def home(self) -> Path:
        return self.path.parents[self.name.count(".") + (self.path.name == "__init__.py")]


class _Source(NamedTuple):
    """The parts of a file that count."""

    digest: str
    imports: frozenset[str]
    texts: frozenset[str]
    has_tables: bool


@lru_cache(maxsize=4096)
def _source(name: str, is_package: bool, content: bytes) -> _Source:
    def is_docstring(node: Any) -> bool:
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

    tree = ast.parse(content)
    for node in ast.walk(tree):
        for field, held in ast.iter_fields(node):
            if isinstance(held, list):
                setattr(node, field, [child for child in held if not is_docstring(child)])
    tables = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == TABLES]
    nodes = list(_walk(tree, frozenset(alias.asname or alias.name for node in tables for alias in node.names)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    package = name if is_package else name.rpartition(".")[0]
    imports = {module for node in nodes for module in _imported(node, package)}
    imports |= {module for text in texts for module in _MODULE.findall(text)}
    digest = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
    return _Source(digest, frozenset(imports), frozenset(texts), TABLES in imports)


def _walk(node: ast.AST, makers: frozenset[str]) -> Iterator[ast.AST]:
    yield node
    is_table = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers
    for field, held in ast.iter_fields(node):
        for child in held if isinstance(held, list) else [held]:
            if isinstance(child, ast.AST) and not (is_table and field == "args"):
                yield from _walk(child, makers)


@cache
def _kinds(module: str) -> list[tuple[str, _File | None]]:
    tables = [member for member in vars(importlib.import_module(module)).values() if isinstance(member, Choices)]
    found = [(kind, target, Place.of(target)) for table in tables for kind, target in table.table.items()]
    return [
        (kind, _File(place.file.stem, RECIPES / place.file) if place else _in(ROOT.parent, target.partition(":")[0]))
        for kind, target, place in found
    ]


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _near(name: str, file: _File) -> _File | None:
    """Return an imported module of this package, of the file's package, or beside it in a user's folder; else None."""
    top = name.partition(".")[0]
    if top == ROOT.name:
        return _in(ROOT.parent, name) if name != top else None  # the package itself holds its version and no code
    is_installed = file.home.name in ("site-packages", "dist-packages")
    return _in(file.home, name) if top == file.name.partition(".")[0] or not is_installed else None


def _in(home: Path, name: str) -> _File | None:
    base = home.joinpath(*name.split("."))
    paths = (base.with_suffix(".py"), base / "__init__.py")
    return next((_File(name, path) for path in paths if path.is_file()), None)


def _module(name: str) -> _File | None:
    loaded = getattr(sys.modules.get(name), "__file__", None)
    try:
        spec = None if loaded else importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    path = loaded or (spec.origin if spec else None)
    if not path or not path.endswith(".py"):
        return None
    # a user's file goes by another name in every process
    return _File(name if "." in name or path.endswith("__init__.py") else Path(path).stem, Path(path))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for key, item in value.items() for text in (str(key), *_texts(item)))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts(item))
