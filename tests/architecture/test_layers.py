"""Imports go down only. The layers are those of the design; this file is their one list in code.

The walk reads source, so an import inside a function or under `if TYPE_CHECKING` counts like any other.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "groupwise"

LAYERS: dict[str, int] = {
    "types": 0, "errors": 0, "config": 0, "randomness": 0, "runs": 0,
    "ranks": 1, "algorithms": 1, "tasks": 1, "rollout.tools": 1, "sandbox": 1, "verifiers": 1, "runs.sinks": 1,
    "models": 2, "rollout": 2, "training": 2, "checks": 2, "evaluation": 2, "recall": 2,
    "trainers": 3,
    "pipeline": 4, "checks.preflight": 4, "checks.memory": 4, "checks.surroundings": 4,
    "explorer": 5, "cli": 5, "__main__": 5,
}  # fmt: skip
"""Layer of every room; a module may import those of lower layers, and its own room. A room within another has a name
with a dot."""

NEIGHBOURS = {
    ("tasks", "verifiers"), ("tasks", "sandbox"), ("verifiers", "sandbox"), ("rollout.tools", "sandbox"),
    ("rollout", "models"), ("training", "models"),
    ("evaluation", "rollout"), ("evaluation", "models"), ("__main__", "cli"),
    ("cli", "explorer"), ("checks.preflight", "checks.memory"),
    ("checks.preflight", "checks.surroundings"),
}  # fmt: skip
"""Imports allowed within a layer, importer first; layer 0, whose modules share one vocabulary, needs no entry."""

FORBIDDEN = {name: ("torch", "transformers") for name, layer in LAYERS.items() if layer == 0} | {
    "tasks": ("torch", "transformers"),
    "verifiers": ("torch", "transformers"),
    "sandbox": ("torch", "transformers"),
    "rollout.tools": ("torch", "transformers"),
    "runs.sinks": ("torch", "transformers"),
    "checks": ("torch", "transformers"),
    "recall": ("torch", "transformers"),
    "algorithms": ("transformers",),
    "explorer": ("torch", "transformers"),
}
"""Outside packages that a top-level module must do without."""


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; `package` is what relative imports are relative to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package.split(".")[: len(package.split(".")) - node.level + 1], *base.split(".")])
            yield from ((node.lineno, f"{base.rstrip('.')}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
            texts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            yield from ((node.lineno, text) for text in texts if isinstance(text, str))


def violations(source: str, path: Path) -> list[str]:
    """What a file of the package (path relative to it) imports against the rules, one sentence each."""
    importer = room(".".join(path.with_suffix("").parts))
    if importer != "__init__" and importer not in LAYERS:
        return [f"{path}: the top-level module '{importer}' has no layer; give it a layer in {Path(__file__).name}"]
    package = ".".join(("groupwise", *path.parts[:-1]))
    found, tree = [], ast.parse(source)
    if importer == "__init__":  # a table of names, which are imported when they are used
        tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node))]
    for line, name in imported_names(tree, package):
        root, _, rest = name.partition(".")
        imported = room(rest)
        if root in FORBIDDEN.get(importer, ()) or (root == "safetensors" and imported in FORBIDDEN.get(importer, ())):
            found.append(f"{path}:{line}: {importer} must do without {root}")
        elif root == "groupwise" and imported in LAYERS and not may_import(importer, imported):
            found.append(f"{path}:{line}: {importer} must not import {imported} (imports go down only)")
        elif root == "groupwise" and imported not in LAYERS and imported not in ("", "__version__"):
            found.append(f"{path}:{line}: '{imported}' has no layer; give it a layer in {Path(__file__).name}")
    return found


def room(dotted: str) -> str:
    """The room of a module, relative to the package: the innermost one that has a layer, else its first name."""
    parts = dotted.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in LAYERS), parts[0])


def may_import(importer: str, imported: str) -> bool:
    """Whether the top-level module `importer` may import the top-level module `imported`."""
    if importer == "__init__":  # everyone imports the package itself, so it imports nothing of ours
        return False
    if importer == imported or (importer, imported) in NEIGHBOURS:
        return True
    return LAYERS[imported] < LAYERS[importer] or LAYERS[importer] == LAYERS[imported] == 0


def test_imports_go_down_only() -> None:
    paths = sorted(path for path in PACKAGE.rglob("*.py") if "recipes" not in path.relative_to(PACKAGE).parts)
    assert paths, f"no source under {PACKAGE}"
    found = [fault for path in paths for fault in violations(path.read_text("utf-8"), path.relative_to(PACKAGE))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("config.py", "import groupwise.models"),
        ("runs/ledger.py", "import torch"),
        ("verifiers/code.py", "from groupwise.tasks import make_task"),
        ("verifiers/code.py", "from groupwise import tasks"),
        ("tasks/arithmetic.py", "def late():\n    import torch.nn"),
        ("verifiers/code.py", "if TYPE_CHECKING:\n    from transformers import AutoModel"),
        ("verifiers/code.py", "from ..tasks import base"),
        ("verifiers/code.py", "from .. import tasks"),
        ("verifiers/code.py", "import safetensors.torch"),
        ("algorithms/kl.py", "import transformers"),
        ("models/packed.py", "from groupwise.rollout.engine import Engine"),
        ("rollout/prompts.py", "from groupwise.training import pack"),
        ("training/update.py", "importlib.import_module('groupwise.rollout')"),
        ("training/update.py", "import_module(f'groupwise.trainers.{name}')"),
        ("trainers/grpo.py", "from groupwise.explorer.run import report_of"),
        ("__init__.py", "from groupwise.config import load"),
        ("__init__.py", "def late():\n    from groupwise.config import load"),
        ("config.py", "from groupwise import train"),
        ("helpers.py", "import os"),
        ("cli/train.py", "from groupwise.helpers import x"),
    ],
)
def test_the_walk_sees_a_violation(path: str, source: str) -> None:
    assert len(violations(source, Path(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("config.py", "from groupwise.errors import ConfigError"),
        ("algorithms/kl.py", "import torch\nfrom groupwise.algorithms import masking"),
        ("models/checkpoint.py", "import safetensors.torch\nfrom . import packed"),
        ("training/update.py", "from groupwise.models.packed import forward\nfrom ..algorithms.kl import KL"),
        ("__init__.py", "if TYPE_CHECKING:\n    from groupwise.trainers import train"),
        ("cli/__init__.py", "from groupwise import __version__\nfrom groupwise.trainers import grpo"),
    ],
)
def test_the_walk_accepts_what_is_allowed(path: str, source: str) -> None:
    assert violations(source, Path(path)) == []


def test_light_modules_load_neither_torch_nor_transformers() -> None:
    names = "groupwise.types, groupwise.config, groupwise.tasks, groupwise.verifiers, groupwise.checks.audit.verifier"
    program = f"import sys, {names}; print(*sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [], f"importing {names} loads {result.stdout.strip()}"
