"""Dynamic sampling (DAPO, Yu et al. 2025, arXiv:2503.14476, §3.2): replace groups without signal, up to a bound.

What it costs and bends is logged with every step: how many groups were drawn, and the pass rate of all of them beside
that of those kept. The kept ones are no fair sample of the task: problems near pass rates 0 and 1 are under-weighted.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from groupwise.types import Problem, ScoredGroup


class Rounds(NamedTuple):
    """What a step sampled."""

    kept: list[ScoredGroup]
    """The step's groups; without signal only where the bound was reached."""
    drawn: list[ScoredGroup]
    """Everything sampled, in order."""
    problems: list[list[str]]
    """Problem ids of each round of sampling."""


def sample_rounds(
    sample: Callable[[Sequence[Problem]], list[ScoredGroup]],
    problems: Sequence[Problem],
    spare: Sequence[Problem],
    max_refills: int,
) -> Rounds:
    """Sample the problems, then spare ones in place of groups without signal until all have one or the bound is met."""
    drawn, rounds, left = sample(problems), [list(problems)], list(spare)
    while len(rounds) <= max_refills and left:
        missing = len(problems) - sum(group.has_signal for group in drawn)
        if missing <= 0:
            break
        rounds.append(left[:missing])
        left = left[missing:]
        drawn += sample(rounds[-1])
    by_signal = sorted(drawn, key=lambda group: not group.has_signal)  # stable: else in the order of sampling
    kept = (by_signal if len(rounds) > 1 else drawn)[: len(problems)]
    return Rounds(kept, drawn, [[problem.id for problem in chosen] for chosen in rounds])
