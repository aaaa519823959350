"""Shared by the oracle's tests."""

from collections.abc import Callable
from typing import Any

import pytest

from groupwise.oracle.estimate import Estimated, estimate
from groupwise.oracle.setting import Policies, Setting
from groupwise.oracle.toys import Toy

Measure = Callable[..., Estimated]


@pytest.fixture(scope="session")
def measure() -> Measure:
    """measure(toy, policies=on-policy, **setting) -> the estimator against the truth."""

    def found(toy: Toy, policies: Policies | None = None, **setting: Any) -> Estimated:
        return estimate(toy.world, policies or Policies.on_policy(toy.theta), Setting(toy.group_size, **setting))

    return found
