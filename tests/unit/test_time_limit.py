"""An everyday test that computes for long is named at the end; one that waits is not."""

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
    module = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    assert isinstance(module, ModuleType)
    return module


def test_long_tests_are_named_at_the_end_and_none_fails_for_it(
    limit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_inner.py").write_text(TESTS)
    plugin = SimpleNamespace(
        pytest_runtest_call=limit.pytest_runtest_call, pytest_terminal_summary=limit.pytest_terminal_summary
    )
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-o", "markers=slow"]
    with pytest.MonkeyPatch.context() as patch:  # no longer than that: the limit holds for the tests of this file too
        patch.setattr(limit, "LIMIT_S", 0.05)
        status = pytest.main([*options, "--import-mode=importlib", str(tmp_path)], plugins=[plugin])
    printed = capsys.readouterr().out
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "1 failed, 5 passed" in printed
    named = printed.partition("processor time")[2]
    assert "s  test_inner.py::test_long\n" in named
    assert not any(name in named for name in ("test_short", "test_that_waits", "test_marked", "test_with_a_fixture"))


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
