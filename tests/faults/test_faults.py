"""Every fault is noticed by its check, which lets sound code pass."""

import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lab import Lab, with_overrides
from planting import find, plant
from zoo import FAULTS, Fault, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_check_notices_the_fault_and_nothing_else(
    fault: Fault, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(request, folder, fault.setup)
    fault.check.run(lab)
    for edit in fault.edits:
        plant(edit, monkeypatch)
    if fault.plant:
        fault.plant(lab, monkeypatch)
    with pytest.raises(fault.check.error) as caught:
        fault.check.run(with_overrides(lab, fault.settings))
    assert fault.check.says in str(caught.value)
    print(str(caught.value)[:300])
