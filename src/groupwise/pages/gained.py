"""Which problems a run gained and lost, and pass@k against the start."""

from collections.abc import Sequence
from typing import NamedTuple

from groupwise.algorithms.statistics import Estimate, mean_share, pass_at_k
from groupwise.evaluation.compare import Pair, common, compare
from groupwise.runs.row import Row

MOST = 8
"""Problems that are named on each side."""


class Moved(NamedTuple):
    """A problem whose share of correct samples changed."""

    problem: str
    question: str
    before: float
    after: float


class Gained(NamedTuple):
    """All problems of a pair of evaluations."""

    gained: list[Moved]
    """Those solved more often than before, the largest change first; at most `MOST` are named."""
    lost: list[Moved]
    num_gained: int
    num_lost: int
    num_same: int
    at_k: list[tuple[int, Estimate, Estimate, Estimate]]
    """k, pass@k before and after, and the paired difference, for k = 1, 2, 4, ..."""


def gained(pair: Pair) -> Gained:
    """Compare the problems that both evaluations judged; a completion without a verdict counts on neither side."""
    before, after = counts(pair.before.rows), counts(pair.after.rows)
    questions = {row.problem: row.question for row in pair.before.rows}
    shares = common(*({name: right / of for name, (of, right) in side.items()} for side in (before, after)))
    moved = [Moved(name, questions[name], share, shares[1][name]) for name, share in shares[0].items()]
    up = sorted((one for one in moved if one.after > one.before), key=lambda one: one.before - one.after)
    down = sorted((one for one in moved if one.after < one.before), key=lambda one: one.after - one.before)
    same = len(moved) - len(up) - len(down)
    return Gained(up[:MOST], down[:MOST], len(up), len(down), same, _at_k(before, after, list(shares[0])))


def counts(rows: Sequence[Row]) -> dict[str, tuple[int, int]]:
    """Judged and correct completions of each problem that has a judged one."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.outcome.judged:
            of, right = found.get(row.problem, (0, 0))
            found[row.problem] = (of + 1, right + (row.outcome == "correct"))
    return found


def _at_k(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], problems: Sequence[str]
) -> list[tuple[int, Estimate, Estimate, Estimate]]:
    """For each k that every problem has samples for, on both sides."""
    most = min((side[name][0] for side in (before, after) for name in problems), default=0)
    lines, k = [], 1
    while k <= most:
        sides = [{name: pass_at_k(*side[name], k) for name in problems} for side in (before, after)]
        means = [mean_share(list(side.values())) for side in sides]
        lines.append((k, means[0], means[1], compare(*sides)))
        k *= 2
    return lines
