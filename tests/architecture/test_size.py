"""The house stays small enough for one head: every budget is a number here, and a change that breaks it fails."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "groupwise"
MAX_LINES, MAX_FILES, MAX_ROOMS = 55_876, 302, 22
MAX_CALLED_ONCE = 264
MAX_TEST_LINES, MAX_LINES_OF_A_TEST_FILE = 58_072, 500
MAX_PAGES = 35
QUESTION_WORDS = ("What", "How", "Whether", "Where", "Which", "Who", "Why")


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def num_lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


def called_once(tree: ast.Module) -> Iterator[str]:
    """Yield the private functions of a module that are named in one place only."""
    used = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    used += Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and re.match("_[^_]", node.name):
            yield from [node.name] if used[node.name] == 1 else []


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield all docstrings, those that stand under an attribute among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        body = node.body if isinstance(node, ast.Module | ast.ClassDef) else []
        for before, text in pairwise(body):
            is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if is_text and isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(text.value.value, str):
                yield text.value.value


def test_the_package_keeps_its_budget() -> None:
    rooms = {path.relative_to(PACKAGE).parts[0] for path in trees()} - {"recipes"}
    assert num_lines(PACKAGE) <= MAX_LINES
    assert len(trees()) <= MAX_FILES
    assert len(rooms) <= MAX_ROOMS, sorted(rooms)


def test_few_private_functions_are_called_once() -> None:
    found = [f"{path.relative_to(PACKAGE)}: {name}" for path, tree in trees().items() for name in called_once(tree)]
    assert len(found) <= MAX_CALLED_ONCE, f"{len(found)} jumps for a name:\n" + "\n".join(found)


def test_a_docstring_says_and_does_not_ask() -> None:
    asking = [
        f"{path.relative_to(PACKAGE)}: {text.splitlines()[0]}"
        for path, tree in trees().items() for text in docstrings(tree)
        if text.strip() and re.split(r"\W", text.strip())[0] in QUESTION_WORDS
    ]  # fmt: skip
    assert not asking, "begin with a verb, or the noun that is returned:\n" + "\n".join(asking)


def test_tests_keep_their_budget() -> None:
    files = {path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert sum(files.values()) <= MAX_TEST_LINES
    assert [f"{path.name}: {lines}" for path, lines in files.items() if lines > MAX_LINES_OF_A_TEST_FILE] == []


def test_the_documentation_keeps_its_budget() -> None:
    assert len(list((ROOT / "docs").rglob("*.md"))) <= MAX_PAGES


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(name: str, tree: ast.Module, modules: set[str], is_package: bool) -> set[str]:
    """Return the modules of the package that a file imports, also late; those for types alone are left out."""
    found = set()
    typing_only = {
        inner for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }  # fmt: skip
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names} & modules
            found |= inner or ({base} & modules)
    return found - {name}


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other (strongly connected components of more than one)."""

    def reach(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for other in imports.get(waiting.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return seen

    reached = {name: reach(name) for name in imports}
    groups = {
        tuple(sorted(n for n in reached[name] if name in reached[n])) for name in imports if name in reached[name]
    }
    return [list(group) for group in sorted(groups)]


def test_files_import_in_no_circle_late_imports_counted() -> None:
    modules = {module_name(path) for path in trees()}
    found = {
        module_name(path): imported(module_name(path), tree, modules, path.name == "__init__.py")
        for path, tree in trees().items()
    }
    assert circles(found) == []


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a": {"b"}, "b": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [["a", "b"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}}, [["a", "b", "c"]]),
    ],
)
def test_a_circle_is_seen(imports: dict[str, set[str]], expected: list[list[str]]) -> None:
    assert circles(imports) == expected


def test_what_is_counted_is_seen() -> None:
    tree = ast.parse('def _a(): "What it is."\ndef _b(): _b()\nx = _a() + _b()\ny = 1\n"Whether."')
    assert list(called_once(tree)) == ["_a"]
    assert sorted(text for text in docstrings(tree) if text) == ["What it is.", "Whether."]
