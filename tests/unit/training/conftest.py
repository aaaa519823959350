"""The groups that updates are tested with."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.models.policy import Policy

sys.path.insert(0, str(Path(__file__).parent))  # for `ragged`
pytest.register_assert_rewrite("ragged")


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    """With many stop tokens, so that completions end at all lengths."""
    return dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 41)))
