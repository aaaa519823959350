"""Shared by the oracle's tests."""

from collections.abc import Callable
from typing import Any

import pytest
from groupwise_lab.oracle.estimate import Estimated, estimate
from groupwise_lab.oracle.setting import Policies, Setting
from groupwise_lab.oracle.toys import Toy

from groupwise.algorithms.advantages import advantage as advantage_of
from groupwise.algorithms.policy_losses import policy_loss as policy_loss_of

Measure = Callable[..., Estimated]


@pytest.fixture(scope="session")
def measure() -> Measure:
    """measure(toy, policies=on-policy, **setting) -> the estimator against the truth; formulas by their kind too."""

    def found(toy: Toy, policies: Policies | None = None, **setting: Any) -> Estimated:
        for name, of in (("advantage", advantage_of), ("policy_loss", policy_loss_of)):
            if isinstance(setting.get(name), str):
                setting[name] = of(setting[name])
        return estimate(toy.world, policies or Policies.on_policy(toy.theta), Setting(toy.group_size, **setting))

    return found
