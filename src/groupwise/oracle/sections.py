"""All sections of the report."""

from collections.abc import Callable

from groupwise.oracle import circumstances, estimators, penalties, token_advantages
from groupwise.oracle.report import Section
from groupwise.oracle.toys import Dials

SECTIONS: dict[str, Callable[[Dials], Section]] = {
    "advantages": estimators.advantages,
    "losses": estimators.losses,
    "aggregations": estimators.aggregations,
    "prompts": estimators.prompts,
    "parts": token_advantages.parts,
    "process": token_advantages.process,
    "critic": token_advantages.critic,
    "off-policy": circumstances.off_policy,
    "importance": circumstances.importance,
    "verifier": circumstances.verifier,
    "truncation": circumstances.truncation,
    "dead-groups": circumstances.dead_groups,
    "kl": penalties.kl,
    "published": estimators.published,
}
"""In the order of the report."""

COMBINATIONS = {"combinations": estimators.combinations}
"""Long, so it is only shown when asked for."""
