"""The modules of this folder that are no tests, and the server from which whole runs are forked."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # started processes take this path over and find the modules there

from processes import start  


@pytest.fixture(scope="session")
def server() -> None:
    """Starts the server from which processes are forked, so that no test's time holds that of its imports."""
    process = start(int)
    process.join()
    assert process.exitcode == 0
