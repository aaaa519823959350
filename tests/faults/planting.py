"""Planting a fault: one piece of a package's syntax is replaced, and the running function takes the new code.

A piece is named by what it says, not by where it stands: it may move to another function or file of its package, the
function around it may be renamed, its lines may be broken elsewhere.
"""

import ast
import copy
import importlib
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

import groupwise

PACKAGE = Path(groupwise.__path__[0])


class Edit(NamedTuple):
    """One slip in the code."""

    where: str
    """Package or module below `groupwise` that holds it, dotted, as `rollout` or `models.packed`. After a colon the
    public function or class around it, where the same stands elsewhere too: `algorithms:GroupMean`."""
    before: str
    """What stands there once: an expression, or whole statements one after the other."""
    after: str
    """What the slip makes of it."""


def plant(edit: Edit, patch: pytest.MonkeyPatch) -> None:
    """Change the function itself, so that everyone who has imported it has the fault."""
    changes = [(path, Change(edit, tree)) for path, tree in trees(edit.where.partition(":")[0]).items()]
    places = [(path, change.tree, name) for path, change in changes for name in change.places]
    found = [f"{path.relative_to(PACKAGE)}: {name or 'top'}" for path, _, name in places]
    assert len(found) == 1, f"{edit.where} reads {edit.before!r} in {len(found)} places, not in one: {found}"
    path, tree, name = places[0]
    assert name, f"{found[0]}: {edit.before!r} stands outside of all functions and has run already"
    function = _running(path, name)
    old = function.__code__
    compiled = _codes(compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True))
    [new] = [c for c in compiled if (c.co_qualname, c.co_firstlineno) == (old.co_qualname, old.co_firstlineno)]
    patch.setattr(function, "__code__", new)


@cache
def trees(package: str) -> dict[Path, ast.Module]:
    """Syntax of every file of a package, or of one module."""
    place = PACKAGE.joinpath(*package.split("."))
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@cache
def _names(tree: ast.AST) -> frozenset[str]:
    """Names of variables and attributes in a piece of syntax."""
    nodes = list(ast.walk(tree))
    variables = {node.id for node in nodes if isinstance(node, ast.Name)}
    return frozenset(variables | {node.attr for node in nodes if isinstance(node, ast.Attribute)})


class Change(ast.NodeTransformer):
    """A copy of a file's syntax with `after` in every place of `before`."""

    def __init__(self, edit: Edit, tree: ast.Module) -> None:
        self.scope = edit.where.partition(":")[2]
        self.before, self.after = ast.parse(edit.before).body, ast.parse(edit.after).body
        self.is_expression = all(len(x) == 1 and isinstance(x[0], ast.Expr) for x in (self.before, self.after))
        self.around: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
        self.places: list[str] = []
        """Qualified name of the outermost function around each place; empty outside of all functions."""
        self.wanted = [ast.dump(statement.value if self.is_expression else statement) for statement in self.before]
        # most files hold other names altogether, and to go through a copy of each takes longer than a training run
        is_possible = set().union(*map(_names, self.before)) <= _names(tree)
        self.tree: ast.Module = self.visit(copy.deepcopy(tree)) if is_possible else tree

    def visit(self, node: ast.AST) -> Any:
        if self.is_expression and self._is_wanted(node) and self._in_scope():
            return ast.copy_location(self._replacement()[0].value, node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return self.generic_visit(node)
        self.around.append(node)
        self.generic_visit(node)
        self.around.pop()
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for _, held in ast.iter_fields(node):
            is_block = isinstance(held, list) and bool(held) and isinstance(held[0], ast.stmt)
            if is_block and not self.is_expression and self._in_scope():
                self._replace_statements(held)
        return super().generic_visit(node)

    def _is_wanted(self, node: ast.AST, number: int = 0) -> bool:
        """Whether this says what the expression says, or the statement of this number."""
        piece = self.before[number].value if self.is_expression else self.before[number]
        return type(node) is type(piece) and ast.dump(node) == self.wanted[number]

    def _replace_statements(self, held: list[ast.stmt]) -> None:
        for start in range(len(held) - len(self.before), -1, -1):
            here = slice(start, start + len(self.before))
            if all(self._is_wanted(statement, number) for number, statement in enumerate(held[here])):
                held[here] = [ast.copy_location(statement, held[start]) for statement in self._replacement()]

    def _in_scope(self) -> bool:
        return not self.scope or self.scope in [definition.name for definition in self.around]

    def _replacement(self) -> list[Any]:
        """Note the place, and what comes there."""
        names: list[str] = []
        for definition in self.around:
            names.append(definition.name)
            if not isinstance(definition, ast.ClassDef):
                self.places.append(".".join(names))
                break
        else:
            self.places.append("")
        return copy.deepcopy(self.after)


def _running(path: Path, name: str) -> FunctionType:
    """The function, without decorators."""
    module = ".".join(("groupwise", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    function = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "func", None) or found)
    assert isinstance(function, FunctionType), name
    return function


def _codes(code: CodeType) -> Iterator[CodeType]:
    """All functions of a compiled file."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)
