"""What the package imports of others is declared: an empty environment gets it with `pip install groupwise`.

An import that runs when its module is imported must be of a dependency; one inside a function, under `try` or for the
types alone may be of an extra. Some modules are of an extra as a whole, and nothing else imports them so.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PROJECT = SOURCE / "groupwise" / "cli" / "project"
"""What `groupwise init` writes: the user's, not ours."""
WORLDS = {path.stem: path for path in sorted((ROOT / "recipes" / "worlds").glob("*.py"))}
"""Python that is shipped beside the recipes; its files import each other by their plain names."""

BROUGHT = {
    "annotated-types": "pydantic", "pydantic-core": "pydantic", "huggingface-hub": "transformers",
    "latex2sympy2-extended": "math-verify", "antlr4-python3-runtime": "math-verify", "sympy": "math-verify",
    "mpmath": "math-verify",
}  # fmt: skip
"""Packages that are imported and not declared, as a declared one is of no use without them: which one that is."""
OF_AN_EXTRA = {
    "groupwise.explorer.server": "explorer", "groupwise.tasks.environments.verifiers_house": "verifiers",
}  # fmt: skip
"""Modules that cannot be imported without an extra."""
FOR_WORK_ON_IT = ("dev", "docs", "browser", "fuzz", "peers")
"""Extras that no user needs, so nothing of the package may."""
IMPORTED_AS = {"mlflow": "mlflow-skinny"}
"""Distributions of other names than what is imported, of those that may be absent here."""


class Import(NamedTuple):
    """One import in a file."""

    name: str
    """Dotted."""
    is_optional: bool
    """True where it may fail and its module be imported all the same."""


def imports(node: ast.AST, package: str, is_optional: bool = False) -> Iterator[Import]:
    """All imports under a node; `package` is what relative ones are relative to."""
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, is_optional) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (Import(f"{base}.{alias.name}", is_optional) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imports(child, package, is_optional or _lets_fail(node))


def _lets_fail(node: ast.AST) -> bool:
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    return is_for_types or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)


@cache
def of_modules() -> dict[str, list[Import]]:
    """The imports of every module of the package, and of the worlds."""
    found = {name: list(imports(ast.parse(path.read_text(encoding="utf-8")), "")) for name, path in WORLDS.items()}
    for path in sorted(SOURCE.rglob("*.py")):
        if "worlds" in path.parts:  # through the link to the recipes
            continue
        if path.is_relative_to(PROJECT):
            continue
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        package = name if is_package else name.rpartition(".")[0]
        found[name] = list(imports(ast.parse(path.read_text(encoding="utf-8")), package))
    return found


@pytest.fixture(scope="module")
def project() -> dict[str, set[str]]:
    """Declared distributions: by extra, and under "" the dependencies."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra: of for extra, of in table["optional-dependencies"].items() if extra not in FOR_WORK_ON_IT}
    listed = {"": table["dependencies"], **extras}
    return {extra: {canonicalize_name(Requirement(text).name) for text in of} for extra, of in listed.items()}


@cache
def distributions() -> dict[str, list[str]]:
    """Installed distributions by what is imported of them."""
    return {name: sorted(set(found)) for name, found in metadata.packages_distributions().items()}


def distribution(name: str) -> str:
    """The distribution that an import belongs to."""
    top = name.partition(".")[0]
    return canonicalize_name(distributions().get(top, [IMPORTED_AS.get(top, top)])[0])


def is_ours_or_pythons(name: str) -> bool:
    return name.partition(".")[0] in {"groupwise", *WORLDS, *sys.stdlib_module_names}


def undeclared(found: list[Import], project: dict[str, set[str]], extra: str = "") -> list[str]:
    """Imports of a module, which may be one of an extra, that nothing declares where they run."""
    always = project[""] | set(BROUGHT) | project[extra]
    anywhere = always.union(*project.values())
    others = [one for one in found if not is_ours_or_pythons(one.name)]
    return [one.name for one in others if distribution(one.name) not in (anywhere if one.is_optional else always)]


def test_every_import_is_of_something_declared(project: dict[str, set[str]]) -> None:
    found = {name: undeclared(of, project, OF_AN_EXTRA.get(name, "")) for name, of in of_modules().items()}
    assert len(found) > 200
    assert {name: names for name, names in found.items() if names} == {}


def test_modules_of_an_extra_are_imported_by_such_alone_where_it_must_succeed() -> None:
    for name, of in of_modules().items():
        for one in of:
            modules = {one.name, one.name.rpartition(".")[0]} & OF_AN_EXTRA.keys()
            extras = {OF_AN_EXTRA[module] for module in modules if not one.is_optional}
            assert extras <= {OF_AN_EXTRA.get(name)}, (name, one)


def test_each_of_the_declared_is_imported(project: dict[str, set[str]]) -> None:
    used = {distribution(one.name) for of in of_modules().values() for one in of if not is_ours_or_pythons(one.name)}
    assert project[""] - used == set()


@pytest.mark.parametrize("name", BROUGHT)
def test_what_is_not_declared_is_brought_by_what_is(name: str, project: dict[str, set[str]]) -> None:
    assert BROUGHT[name] in project[""]
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (declared,) = [one for one in map(Requirement, listed) if canonicalize_name(one.name) == BROUGHT[name]]
    waiting, seen = [(canonicalize_name(declared.name), ("", *declared.extras))], set[str]()
    while waiting:
        current, extras = waiting.pop()
        seen.add(current)
        for one in map(Requirement, metadata.requires(current) or []):
            inner = canonicalize_name(one.name)
            is_wanted = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
            if is_wanted and inner not in seen and inner in installed():
                waiting.append((inner, ("", *one.extras)))
    assert name in seen


@cache
def installed() -> set[str]:
    return {canonicalize_name(one.metadata["Name"]) for one in metadata.distributions()}


def test_an_import_that_nothing_declares_is_seen(project: dict[str, set[str]]) -> None:
    text = """
import os, torch.nn, pytest
from . import neighbour
from pytest import fixture
import peft
try:
    import wandb
    import nowhere
except ImportError:
    pass
if TYPE_CHECKING:
    import warcio
def work():
    from mlflow import start_run
    import elsewhere.part
class Kept:
    import inside
"""
    found = list(imports(ast.parse(text), "groupwise.cli"))
    assert re.findall(r"groupwise\.\S+", " ".join(one.name for one in found)) == ["groupwise.cli.neighbour"]
    outside = ["pytest", "pytest.fixture", "peft", "nowhere", "elsewhere.part", "inside"]
    assert undeclared(found, project) == outside
    assert undeclared(found, project, "lora") == [name for name in outside if name != "peft"]
