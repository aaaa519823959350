"""Sections on what goes wrong around an estimator: stale samples, a foreign sampler, a noisy verifier, cut answers."""

import math
from typing import get_args

from groupwise.algorithms.advantages import LeaveOneOut, advantage
from groupwise.algorithms.policy_losses import POLICY_LOSSES, ClippedRatio, policy_loss
from groupwise_lab.oracle.batches import signal_chances
from groupwise_lab.oracle.estimate import estimate
from groupwise_lab.oracle.report import Row, Section, figures, on_policy_rows, section
from groupwise_lab.oracle.setting import Correction, Level, Policies, Setting
from groupwise_lab.oracle.toys import Dials, Toy, toy

UPDATES = {"small": 0.3, "large": 1.0}
"""Length of the step in logits, along ∇J, between sampling and the update whose gradient is taken."""
NO_BOUNDS = ClippedRatio(kind="clipped_ratio", clip_low=1.0, clip_high=math.inf)
LEAVE_ONE_OUT = LeaveOneOut(kind="leave_one_out")
FOREIGN = 0.7
"""Standard deviation of the difference in logits between the policy and its foreign sampler."""


def off_policy(dials: Dials) -> Section:
    """Every loss after one update of the policy."""
    world = toy(dials)
    settings = {name: Setting(world.group_size, LEAVE_ONE_OUT, policy_loss(name)) for name in POLICY_LOSSES.table}
    settings["clipped_ratio, no bounds"] = Setting(world.group_size, LEAVE_ONE_OUT, NO_BOUNDS)
    rows = [_stale(world, size, name, setting) for size in UPDATES for name, setting in settings.items()]
    return section(
        "off-policy", "Off-policy: samples of the policy before an update",
        "The same policies for all; ε = 0.2. Ratios of single tokens ignore what stands before the token, so even "
        "without bounds they are not exact; bounds stop gradients where they hold (`clipped`: share of tokens).",
        world, rows, ["clipped"],
    )  # fmt: skip


def updated(world: Toy, size: str) -> Policies:
    """The policies after one update."""
    truth = world.world.gradient(world.theta)
    return Policies(world.theta + UPDATES[size] * truth / truth.norm(), world.theta, world.theta)


def _stale(world: Toy, size: str, name: str, setting: Setting) -> Row:
    estimated = estimate(world.world, updated(world, size), setting)
    return Row(f"{size}: {name}", (*figures(estimated), estimated.clipped))


def verifier(dials: Dials) -> Section:
    """A verifier that errs."""
    world = toy(dials, max_length=2)
    rates = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1), (0.1, 0.1), (0.2, 0.3))
    settings = {
        f"{name}, fp {100 * fp:.0f} %, fn {100 * fn:.0f} %": Setting(
            world.group_size, advantage(name), false_positive=fp, false_negative=fn
        )
        for name in ("leave_one_out", "group_normalised")
        for fp, fn in rates
    }
    return section(
        "verifier", "A verifier that errs",
        "False positives (fp) and negatives (fn) that do not depend on the completion leave the direction and scale it "
        "by 1 - fp - fn; they cost noise.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def truncation(dials: Dials) -> Section:
    """Completions that ran into the length limit."""
    world = toy(dials, rewards="finished")
    settings = {
        f"{name}, {what}": Setting(world.group_size, advantage(name), truncated=what)
        for name in ("none", "leave_one_out", "group_mean")
        for what in ("keep", "mask")
    }
    cut = float((world.world.probabilities(world.theta) * world.world.truncated).sum(-1).mean())
    return section(
        "truncation", "Truncated completions",
        f"{cut:.0%} of the completions reach the limit and get 0. Kept, they teach to finish; masked, that part of ∇J "
        "is missing, and with a baseline there is a push against finishing instead.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def dead_groups(dials: Dials) -> Section:
    """Groups of equal rewards, and drawing others for them."""
    world = toy(dials, num_tokens=2, num_prompts=2)
    settings = {
        f"{name}, {what}": Setting(world.group_size, advantage(name), dead_groups=what)
        for name in ("none", "group_mean", "group_normalised", "batch_normalised")
        for what in ("keep", "again", "other")
    }
    shares = [1 - chance for chance in signal_chances(world.world, world.theta, Setting(world.group_size))]
    return section(
        "dead-groups", "Dead groups",
        f"{' and '.join(f'{share:.0%}' for share in shares)} of the prompts' groups have equal rewards. `keep`: they "
        "stay; `again`: the same prompt is sampled until there is a signal; `other`: a group of another prompt takes "
        "the place (dynamic sampling).",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def importance(dials: Dials) -> Section:
    """Correction for a sampler that is not the policy."""
    world = toy(dials)
    settings = {"none": Setting(world.group_size, LEAVE_ONE_OUT)}
    levels: tuple[Level, ...] = get_args(Level)
    bounds: tuple[Correction, ...] = ("truncate", "mask")
    for level in levels:
        settings[f"{level}, no cap"] = _corrected(world, level, "truncate", math.inf)
        for bound in bounds:
            for cap in (4.0, 2.0, 1.5, 1.0):
                settings[f"{level}, {bound} at {cap:g}"] = _corrected(world, level, bound, cap)
    policies = Policies(world.theta, world.theta, world.logits("sampler", FOREIGN))
    rows = []
    for name, setting in settings.items():
        estimated = estimate(world.world, policies, setting)
        rows.append(Row(name, (*figures(estimated), math.sqrt(estimated.variance))))
    return section(
        "importance", "Importance weights for a foreign sampler",
        f"The sampler's logits differ by {FOREIGN} (standard deviation): far more than another engine's, to be seen. "
        "Weights of whole completions without a cap are unbiased; the lower the cap, the less `std` (one batch's "
        "standard deviation in units of |∇J|) and the more bias.",
        world, rows, ["std"],
    )  # fmt: skip


def _corrected(world: Toy, level: Level, bound: Correction, cap: float) -> Setting:
    return Setting(world.group_size, LEAVE_ONE_OUT, correction=bound, correction_level=level, correction_cap=cap)
