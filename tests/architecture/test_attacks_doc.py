"""docs/do/reward.md names a test for every attack, and every one of them exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| (\d+) \|(.*)\|$", (ROOT / "docs" / "do" / "reward.md").read_text(encoding="utf-8"), re.MULTILINE
)


def named_tests(row: str) -> list[str]:
    """The tests in the last column."""
    return re.findall(r"`([\w/]+\.py::test_\w+)`", row.rpartition(" | ")[2])


def exists(name: str) -> bool:
    file, _, test = name.partition("::")
    path = ROOT / "tests" / "unit" / file
    defined = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    return test in {node.name for node in defined if isinstance(node, ast.FunctionDef)}


def test_the_attacks_are_numbered() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) == 45


@pytest.mark.parametrize("row", [row for _, row in ROWS], ids=[number for number, _ in ROWS])
def test_every_attack_has_tests_that_exist(row: str) -> None:
    assert named_tests(row)
    assert [name for name in named_tests(row) if not exists(name)] == []


def test_every_numbered_test_is_named_in_its_row() -> None:
    for file in ("verifiers/math/test_math_attacks.py", "sandbox/test_attacks.py"):
        source = (ROOT / "tests" / "unit" / file).read_text(encoding="utf-8")
        for number, test in re.findall(r"^def (?=test_)(?=test_(\d\d)_)(\w+)", source, re.MULTILINE):
            assert f"{file}::{test}" in named_tests(dict(ROWS)[str(int(number))])


def test_a_missing_test_is_seen() -> None:
    assert exists("verifiers/math/test_math_attacks.py::test_14_code")
    assert not exists("verifiers/math/test_math_attacks.py::test_14_cod")
    assert not exists("verifiers/test_no_such_file.py::test_14_code")
