"""Dynamic sampling (DAPO, Yu et al. 2025, arXiv:2503.14476, §3.2): replace groups without signal, up to a bound.

What it costs and bends is logged with every step: how many groups were drawn, and the pass rate of all of them beside
that of those kept. The kept ones are no fair sample of the task: problems near pass rates 0 and 1 are under-weighted.
"""

from collections.abc import Iterator, Sequence

from groupwise.types import Problem, ScoredGroup


class Rounds:
    """The rounds of sampling of one step: its problems, then others in place of groups without signal.

    rounds = Rounds(problems, spare, max_refills)
    for chosen in rounds:
        rounds.add(sample_and_score(chosen, ...))
    rounds.kept
    """

    def __init__(self, problems: Sequence[Problem], spare: Sequence[Problem], max_refills: int) -> None:
        self._wanted, self._left, self._max_refills = list(problems), list(spare), max_refills
        self.drawn: list[ScoredGroup] = []
        """Everything sampled, in order."""
        self.problems: list[list[str]] = []
        """Problem ids of each round."""

    def __iter__(self) -> Iterator[list[Problem]]:
        chosen = self._wanted
        while chosen:
            self.problems.append([problem.id for problem in chosen])
            yield chosen
            missing = len(self._wanted) - sum(group.has_signal for group in self.drawn)
            may_refill = len(self.problems) <= self._max_refills
            chosen = self._left[: max(missing, 0)] if may_refill else []
            self._left = self._left[len(chosen) :]

    def add(self, scored: Sequence[ScoredGroup]) -> None:
        """Take up what a round sampled."""
        self.drawn += scored

    @property
    def kept(self) -> list[ScoredGroup]:
        """The step's groups; without signal only where the bound was reached."""
        by_signal = sorted(self.drawn, key=lambda group: not group.has_signal)  # stable: else in the order of sampling
        return (by_signal if len(self.problems) > 1 else self.drawn)[: len(self._wanted)]
