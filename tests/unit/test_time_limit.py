"""An everyday test that computes for too long fails; one that waits does not, nor one on a slow or loaded machine."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

BURN = "while time.process_time() < {seconds}: pass"
TESTS = f"""
import time
import pytest

def burn():
    seconds = time.process_time() + 0.12
    {BURN.format(seconds="seconds")}

def test_long(): burn()

def test_short(): pass

def test_that_waits(): time.sleep(0.2)

def test_that_fails():
    burn()
    assert 1 == 2

@pytest.fixture
def built(): burn()

def test_with_a_fixture(built): pass

@pytest.mark.slow
def test_marked(): burn()
"""


@pytest.fixture
def limit(request: pytest.FixtureRequest) -> ModuleType:
    """The `conftest.py` of all tests."""
    module = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert isinstance(module, ModuleType)
    return module


def failed(limit: ModuleType, slowness: float, folder: Path) -> dict[str, str]:
    """Why those of `TESTS` failed that did, by name, with a limit of 0.05 s on a machine so many times slower."""
    (folder / "test_inner.py").write_text(TESTS)
    reports: list[pytest.TestReport] = []
    plugin = SimpleNamespace(
        pytest_runtest_call=limit.pytest_runtest_call,
        pytest_runtest_logreport=lambda report: reports.append(report),
    )
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(folder),
        "-o",
        "markers=slow",
        "--import-mode=importlib",
    ]
    with pytest.MonkeyPatch.context() as patch:  # no longer than that: the limit holds for the tests of this file too
        patch.setattr(limit, "LIMIT_S", 0.05)
        patch.setattr(limit, "yardstick_s", lambda: limit.YARDSTICK_S * slowness)
        patch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
        pytest.main([*options, str(folder)], plugins=[plugin])
    assert sum(report.when == "call" for report in reports) == 6
    return {report.nodeid.partition("::")[2]: report.longreprtext for report in reports if report.failed}


def test_a_test_beyond_the_limit_fails_with_its_name(limit: ModuleType, tmp_path: Path) -> None:
    found = failed(limit, 0.5, tmp_path)  # on a fast machine the limit is the same
    assert found.keys() == {"test_long", "test_that_fails"}
    assert "test_inner.py::test_long takes 0.1 s of processor time; 0.05 s are allowed every day" in found["test_long"]
    assert "@pytest.mark.slow" in found["test_long"]
    assert "assert 1 == 2" in found["test_that_fails"]
    assert "processor time" not in found["test_that_fails"]


def test_a_slow_machine_has_more_time(limit: ModuleType, tmp_path: Path) -> None:
    assert failed(limit, 20, tmp_path).keys() == {"test_that_fails"}


def test_a_machine_is_slow_by_the_yardstick_or_by_its_load(limit: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit.YARDSTICK_S / 20 < limit.yardstick_s() < limit.YARDSTICK_S * 100
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for load, factor, expected in [(2, 0.5, 1), (4, 1, 1), (12, 1, 3), (12, 5, 5)]:
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        monkeypatch.setattr(limit, "yardstick_s", lambda factor=factor: factor * limit.YARDSTICK_S)
        assert limit.slowness() == pytest.approx(expected)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of children that live")
def test_processes_that_a_test_starts_count_alive_and_ended(limit: ModuleType) -> None:
    before = limit.processor_s()
    child = f"import time\n{BURN.format(seconds=0.3)}\nprint(flush=True); input()"
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-Sc', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-Sc", grandchild], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alive = limit.processor_s()
        process.communicate("\n")
    ended = limit.processor_s()
    assert before + 0.25 < alive <= ended + 0.05  # counted in hundredths
