"""What has a public name says what it is, and what can be configured is read by some code.

Methods are left to judgement (a property named `num_tokens` says it all); functions, classes and keys are not.
"""

import ast
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import groupwise
from groupwise.config import Section

PACKAGE = Path(__file__).parents[2] / "src" / "groupwise"
VALIDATORS = ("field_validator", "model_validator")


def undocumented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of the public functions and classes of a module that have no docstring."""
    for node in tree.body:
        is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if is_definition and not node.name.startswith("_") and not (ast.get_docstring(node) or "").strip():
            yield node.lineno, node.name


def attributes_read(tree: ast.AST) -> Iterator[str]:
    """Names read as `something.name`. A validator only checks a value, so what it reads does not count."""
    if isinstance(tree, ast.FunctionDef) and any(v in ast.unparse(d) for d in tree.decorator_list for v in VALIDATORS):
        return
    if isinstance(tree, ast.Attribute) and isinstance(tree.ctx, ast.Load):
        yield tree.attr
    for child in ast.iter_child_nodes(tree):
        yield from attributes_read(child)


def subclasses(model: type[Section]) -> Iterator[type[Section]]:
    """All subclasses of a section, however deep."""
    for child in model.__subclasses__():
        yield child
        yield from subclasses(child)


def fields(sections: Iterable[type[Section]]) -> Iterator[tuple[str, str, str | None]]:
    """Where a key is declared, its name and its docstring."""
    for section in sections:
        for name in section.__annotations__.keys() & section.model_fields.keys():
            yield f"{section.__module__}.{section.__qualname__}", name, section.model_fields[name].description


TAGS = {"algorithm", "source"}
"""Discriminators: pydantic reads them to choose the section's class."""


def names_as_text(tree: ast.Module) -> Iterator[str]:
    """Keys that are looked up by name: strings in code (tables, `match` cases, arguments), docstrings left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


@pytest.fixture(scope="module")
def sections() -> list[type[Section]]:
    for module in pkgutil.walk_packages(groupwise.__path__, "groupwise."):
        if not module.name.endswith((".__main__", ".verifiers_house")):  # the latter needs its package, and has no keys
            importlib.import_module(module.name)
    found = [section for section in subclasses(Section) if section.__module__.startswith("groupwise.")]
    assert found, "no configuration was found"
    return found


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}


def test_public_functions_and_classes_have_docstrings(trees: dict[str, ast.Module]) -> None:
    missing = [f"{path}:{line}: {name}" for path, tree in trees.items() for line, name in undocumented(tree)]
    assert not missing, "no docstring:\n" + "\n".join(sorted(missing))


def test_config_keys_have_docstrings(sections: list[type[Section]]) -> None:
    missing = [f"{owner}.{name}" for owner, name, text in fields(sections) if not (text or "").strip()]
    assert not missing, "no docstring under the field:\n" + "\n".join(sorted(missing))


def test_config_keys_are_read(sections: list[type[Section]], trees: dict[str, ast.Module]) -> None:
    read = {name for tree in trees.values() for name in (*attributes_read(tree), *names_as_text(tree))}
    unread = [f"{owner}.{name}" for owner, name, _ in fields(sections) if name not in read and name not in TAGS]
    assert not unread, "keys that no code reads:\n" + "\n".join(sorted(unread))


def test_a_missing_docstring_is_seen() -> None:
    source = """
def told():
    "Yes."
def untold(): pass
class Untold:
    def method(self): pass
def _private(): pass
"""
    assert [name for _, name in undocumented(ast.parse(source))] == ["untold", "Untold"]


def test_neither_a_write_nor_a_validator_counts_as_a_read() -> None:
    source = """
x.written = y.used
class Recipe(Section):
    @model_validator(mode="after")
    def check(self): return self.checked
"""
    assert {"written", "used", "checked"} & set(attributes_read(ast.parse(source))) == {"used"}


def test_an_undocumented_key_is_seen() -> None:
    class Base(Section):
        told: int = 1
        """Meaning."""

    class Derived(Base):
        untold: int = 2

    assert [(name, text) for _, name, text in fields([Base, Derived])] == [("told", "Meaning."), ("untold", None)]
