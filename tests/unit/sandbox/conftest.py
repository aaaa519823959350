"""Sandboxes with settings of their own, and an ordinary user's."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from groupwise.sandbox.base import Sandbox, SandboxConfig
from groupwise.sandbox.opening import open_sandbox


@pytest.fixture
def opened(bubblewrap: None) -> Iterator[Callable[..., Sandbox]]:
    """opened(**changes) -> a sandbox of one's own, closed after the test."""
    sandboxes: list[Sandbox] = []

    def make(**changes: object) -> Sandbox:
        sandboxes.append(open_sandbox(SandboxConfig.model_validate({"cpu_s": 1, **changes})))
        return sandboxes[-1]

    yield make
    for sandbox in sandboxes:
        sandbox.close()


@pytest.fixture(scope="session")
def as_ordinary_user() -> Callable[[str], str]:
    """as_ordinary_user(source) -> what it prints when a user without rights runs it; tests of the superuser only."""
    if os.geteuid() != 0:
        pytest.skip("these tests are run by an ordinary user already")
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}

    def run(source: str) -> "subprocess.CompletedProcess[str]":
        become = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", python, "-c", source]
        return subprocess.run(become, capture_output=True, text=True, env=environment, cwd="/", check=False)

    if shutil.which("setpriv") is None or not os.path.exists(python):
        pytest.skip(f"needs setpriv and {python}, which others than the superuser can run")
    trial = run("import groupwise.sandbox.opening")
    if trial.returncode:
        pytest.skip(f"an ordinary user cannot read the package here: {trial.stderr.strip().splitlines()[-1]}")

    def run_well(source: str) -> str:
        result = run(source)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run_well
