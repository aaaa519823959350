"""Fixtures that the tests borrowed from other files want; each of those files has its own of the same name."""

import ast
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import groupwise
from groupwise.models.policy import Policy

HOOK = """
import os, time

def run(request):
    if request["answer"] == "sleep": time.sleep(60)
    if request["answer"] == "die": os._exit(3)
    return {"outcome": "correct", "evidence": ""}
"""


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    return dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 41)))


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "hook_of_faults.py").write_text(HOOK)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "hook_of_faults:run"


@pytest.fixture(scope="session")
def trees() -> dict[str, ast.Module]:
    """Source of the package, as far as it reads the keys in question."""
    package = Path(groupwise.__path__[0])
    paths = (package / "training").glob("*.py")
    return {str(path.relative_to(package)): ast.parse(path.read_text("utf-8")) for path in paths}
