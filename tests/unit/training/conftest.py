"""The groups that updates are tested with."""

import dataclasses
from collections.abc import Callable

import pytest

from groupwise.models.policy import Policy

pytest.register_assert_rewrite("ragged")


@pytest.fixture
def policy(tiny_policy: Callable[..., Policy]) -> Policy:
    """With many stop tokens, so that completions end at all lengths."""
    return dataclasses.replace(tiny_policy(), stop_ids=frozenset(range(1, 41)))
