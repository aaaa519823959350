"""The section on estimators of the divergence from a reference."""

from typing import get_args

from torch import Tensor

from groupwise.algorithms.kl import KL_ESTIMATORS
from groupwise.oracle.kl import Divergences, KlEstimate, Place, divergences, expected
from groupwise.oracle.report import Row, Section
from groupwise.oracle.toys import Dials, toy

COLUMNS = ("value", "std", "length", "to sequence", "to token", "to forward")
WHERE = {"loss": "in loss", "corrected": "× ratio", "reward": "in reward"}
"""How the report names the places."""
REFERENCE, STALE = 1.0, 0.3
"""Standard deviation of the difference in logits between the policy and its reference, and an older policy."""


def kl(dials: Dials) -> Section:
    """Every estimator in the loss, corrected, and in the reward."""
    world = toy(dials)
    reference = world.logits("reference", REFERENCE)
    samplers = {"": None, ", stale": world.logits("older", STALE)}
    rows = []
    for stale, sampler in samplers.items():
        truth = divergences(world.world, world.theta, reference, sampler)
        for place in get_args(Place):
            for estimator in KL_ESTIMATORS:
                found = expected(world.world, world.theta, reference, estimator, place, sampler)
                rows.append(Row(f"{estimator} {WHERE[place]}{stale}", _figures(found, truth)))
    return Section(
        "kl", "KL estimators",
        "`value` and `std` are in units of the true divergence, 1 is right; `length` is that of the expected gradient "
        "in units of the sequence divergence's. Then the distance (0 is right) to three true gradients: of KL(π ‖ ref) "
        "of whole sequences, of each token given the text before it, and of KL(ref ‖ π) of each token. `× ratio`: in "
        "the loss, times π/π_old; `stale`: samples of an older policy.",
        str(world), COLUMNS, tuple(rows),
    )  # fmt: skip


def _figures(found: KlEstimate, truth: Divergences) -> tuple[float, ...]:
    def distance(gradient: Tensor) -> float:
        return float((found.gradient - gradient).norm() / gradient.norm())

    length = float(found.gradient.norm() / truth.sequence.norm())
    value = (found.value / truth.value, found.std / truth.value)
    return (*value, length, distance(truth.sequence), distance(truth.token), distance(truth.token_forward))
