"""Runs for the explorer's tests."""

from pathlib import Path

import pytest
from written_run import write_hostile, write_run


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """A small run with every column."""
    return write_run(tmp_path / "first")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run that somebody made to do harm."""
    return write_hostile(tmp_path / "hostile", big=100_000)
