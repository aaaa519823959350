"""Sections on estimators as they stand on-policy, and the table of all sections."""

from collections.abc import Callable
from itertools import product

from groupwise.algorithms.advantages import ADVANTAGES, LeaveOneOut, advantage
from groupwise.algorithms.objective import AGGREGATIONS
from groupwise.algorithms.policy_losses import POLICY_LOSSES, policy_loss
from groupwise_lab.oracle import circumstances, kl, token_advantages
from groupwise_lab.oracle.estimate import estimate
from groupwise_lab.oracle.published import as_setting, published_algorithms
from groupwise_lab.oracle.report import Row, Section, figures, on_policy_rows, section
from groupwise_lab.oracle.setting import Policies, Setting
from groupwise_lab.oracle.toys import Dials, Toy, toy

LEAVE_ONE_OUT = LeaveOneOut(kind="leave_one_out")
OF_REWARDS = [kind for kind in ADVANTAGES.table if advantage(kind).reads not in ("steps", "tokens", "turns")]
"""Advantages that give every completion one; process supervision has a section of its own."""


def advantages(dials: Dials) -> Section:
    """Every advantage on one prompt."""
    world = toy(dials, rewards="graded")
    rows = on_policy_rows(world, {name: Setting(world.group_size, advantage(name)) for name in OF_REWARDS})
    return section(
        "advantages", "Advantages",
        "Rewards in quarters, so that dividing by a group's own std or mean bends even one prompt's gradient; with "
        "rewards of 0 and 1 every advantage keeps one prompt's direction. The scale is a matter of the learning rate.",
        world, rows,
    )  # fmt: skip


def losses(dials: Dials) -> Section:
    """Every policy loss, on-policy."""
    world = toy(dials)
    settings = {name: Setting(world.group_size, LEAVE_ONE_OUT, policy_loss(name)) for name in POLICY_LOSSES.table}
    rows = on_policy_rows(
        world,
        {
            **settings,
            "sequence_ratio, sequence": Setting(
                world.group_size, LEAVE_ONE_OUT, policy_loss("sequence_ratio"), "sequence"
            ),
        },
    )
    return section(
        "losses", "Policy losses on-policy",
        "Leave-one-out advantages. At a ratio of 1 all losses have the same gradient; on-policy GSPO differs only by "
        "the `sequence` aggregation that belongs to it.",
        world, rows,
    )  # fmt: skip


def aggregations(dials: Dials) -> Section:
    """Every aggregation of tokens."""
    world = toy(dials)
    rows = on_policy_rows(
        world, {name: Setting(world.group_size, LEAVE_ONE_OUT, aggregation=name) for name in AGGREGATIONS}
    )
    return section(
        "aggregations", "Aggregation of tokens",
        "Leave-one-out advantages. `token` divides by a number of tokens that depends on the sample; `sequence` "
        "weights every completion with 1 / its length.",
        world, rows,
    )  # fmt: skip


def combinations(dials: Dials) -> Section:
    """Everything with everything."""
    world = toy(dials, rewards="graded")
    settings = {
        " · ".join(names): Setting(world.group_size, advantage(names[0]), policy_loss(names[1]), names[2])
        for names in product(OF_REWARDS, POLICY_LOSSES.table, AGGREGATIONS)
    }
    return section(
        "combinations", "All combinations",
        "Advantage · policy loss · aggregation, on-policy.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


def prompts(dials: Dials) -> Section:
    """Every advantage on several prompts: who weights them against each other."""
    world = toy(dials, num_tokens=2, max_length=2, group_size=8, num_prompts=2)
    rows = [_prompt_row(world, name) for name in OF_REWARDS]
    return section(
        "prompts", "Several prompts",
        "A hard and an easier prompt, rewards 0 and 1. The last columns are the scale of each prompt's own share: "
        "where they differ, prompts are weighted against each other and the cosine falls below 1.",
        world, rows, [f"p = {rate:.2f}" for rate in world.pass_rates],
    )  # fmt: skip


def _prompt_row(world: Toy, kind: str) -> Row:
    estimated = estimate(world.world, Policies.on_policy(world.theta), Setting(world.group_size, advantage(kind)))
    return Row(kind, (*figures(estimated), *estimated.scales(world.world.num_prompts)))


def published(dials: Dials) -> Section:
    """The published algorithms as whole settings."""
    world = toy(dials, num_tokens=2, num_prompts=2, rewards="finished")
    settings = {
        name: as_setting(algorithm, world.group_size)
        for name, algorithm in published_algorithms().items()
        if algorithm.is_grpo
    }
    return section(
        "published", "Published algorithms",
        "Each algorithm's advantage, loss, aggregation, masking and refilling together, on-policy, without KL terms. "
        "The settings stand in docs/algorithms.md.",
        world, on_policy_rows(world, settings),
    )  # fmt: skip


SECTIONS: dict[str, Callable[[Dials], Section]] = {
    "advantages": advantages,
    "losses": losses,
    "aggregations": aggregations,
    "prompts": prompts,
    "parts": token_advantages.parts,
    "process": token_advantages.process,
    "critic": token_advantages.critic,
    "steps": token_advantages.steps,
    "turns": token_advantages.turns,
    "off-policy": circumstances.off_policy,
    "importance": circumstances.importance,
    "verifier": circumstances.verifier,
    "truncation": circumstances.truncation,
    "dead-groups": circumstances.dead_groups,
    "kl": kl.kl,
    "published": published,
}
"""In the order of the report."""

COMBINATIONS = {"combinations": combinations}
"""Long, so it is only shown when asked for."""
