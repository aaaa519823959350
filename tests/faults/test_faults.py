"""Every fault is noticed by its check, which lets sound code pass; the document names them all."""

import ast
from pathlib import Path

import pytest
from planting import Edit, plant, trees
from zoo import FAULTS, KINDS, table

from lab import Check, Fault, Lab

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
PASSED: set[object] = set()
"""What has run through on sound code."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_is_noticed_and_sound_code_passes(
    fault: Fault, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Lab(request, folder)
    if fault.check.run not in PASSED:
        fault.check.run(sound)
        PASSED.add(fault.check.run)
    for slip in fault.plant:
        plant(slip, monkeypatch) if isinstance(slip, Edit) else slip(sound, monkeypatch)
    with pytest.raises(fault.check.error) as caught:
        fault.check.run(Lab(request, folder, fault.settings))
    assert fault.check.says in str(caught.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["met"])
def test_the_test_of_a_kind_is_there(kind: dict[str, str]) -> None:
    path, _, name = kind["test"].partition("::")
    assert f"def {name}(" in (Path(__file__).parents[1] / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("check", dict.fromkeys(f.check for f in FAULTS if f.check.says), ids=lambda check: check.where)
def test_the_error_is_raised_where_the_table_says(check: Check) -> None:
    texts = [node.value for tree in trees(check.where).values() for node in ast.walk(tree) if is_text(node)]
    assert any(check.says in text for text in texts)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == table(), "run `python tests/faults/zoo.py > docs/faults.md`"


def test_no_fault_is_left_out() -> None:
    assert {fault.number for fault in FAULTS} >= {*range(9), *range(12, 24)}
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    assert all(fault.plant or fault.settings for fault in FAULTS)
