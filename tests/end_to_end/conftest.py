"""The modules of this folder that are no tests, and the server from which whole runs are forked."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import groupwise.explorer.export  # noqa: F401  its imports take longer than a test that is the first to need it
from groupwise.pipeline import fingerprint

FOLDER = str(Path(__file__).parent)
sys.path.insert(0, FOLDER)  # started processes take this path over and find the modules there


@pytest.fixture(scope="session")
def server() -> None:
    """Starts the server from which processes are forked, so that no test's time holds that of its imports."""
    from processes import start

    with pytest.MonkeyPatch.context() as patch:  # the server itself takes no path over
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (FOLDER, os.environ.get("PYTHONPATH")))))
        process = start(int)
    process.join()
    assert process.exitcode == 0


@pytest.fixture(scope="module")
def imports_are_found_once() -> Iterator[None]:
    """Where the package imports from does not change while its tests run; to look for it takes as long as a stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "_near", cache(fingerprint._near))
        fingerprint.code_version(["groupwise.pipeline.train", "groupwise.pipeline.evaluation"])
        yield
