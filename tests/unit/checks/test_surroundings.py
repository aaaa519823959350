"""What a bug report says of a machine: every fact by itself, and what cannot be had in its place."""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from groupwise.checks import surroundings as module
from groupwise.cli.main import app, main
from groupwise.errors import SandboxError


@pytest.fixture
def without_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """No self-test of seconds; a tier that cannot be had."""

    def refuse(tier: str) -> str:
        raise SandboxError(f"no {tier} here")

    monkeypatch.setattr(module, "sandbox_tier", refuse)


def test_it_says_what_there_is(without_sandbox: None) -> None:
    facts = json.loads(CliRunner().invoke(app, ["doctor", "--environment", "--json"], catch_exceptions=False).stdout)
    assert facts["python"] == platform.python_version()
    assert facts["torch"]["version"] == torch.__version__
    assert facts["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # PyPI's lacks +cu130
    assert facts["torch_threads"] == torch.get_num_threads()
    assert facts["fork_server"] == "works"
    assert facts["sandbox"] == {"bubblewrap": "no: no bubblewrap here", "landlock": "no: no landlock here"}
    assert "not installed" not in facts["versions"].values()
    assert not set(facts["not_installed"]) & set(facts["versions"])


def test_a_system_that_lacks_something_hides_nothing_else(
    without_sandbox: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks() -> Any:
        raise ModuleNotFoundError("No module named 'resource'")

    monkeypatch.setattr(module, "fork_server", lacks)
    said = CliRunner().invoke(app, ["doctor", "--environment"], catch_exceptions=False).stdout
    assert "fork_server    no: ModuleNotFoundError: No module named 'resource'\n" in said
    assert "bubblewrap no: no bubblewrap here, landlock no: no landlock here\n" in said


def test_a_fork_server_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.fork")
    assert module.fork_server().startswith("no: ")


@pytest.mark.parametrize(("name", "is_said"), [("fcntl", True), ("torch", False)])
def test_on_windows_one_sentence_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, is_said: bool
) -> None:
    def lacks() -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys.modules["groupwise.cli.main"], "app", lacks)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # the traceback of a fault of ours goes there
    with pytest.raises(SystemExit, match="2" if is_said else "70"):
        main()
    assert ("on Windows use WSL2" in capsys.readouterr().err) == is_said
