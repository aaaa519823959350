"""The processes that train one model together, of which this is one; the only place that knows how many there are.

One process is the ordinary case and takes the same path: what is written here for it holds for a group of one.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Ranks:
    """A group of one process."""

    @property
    def is_first(self) -> bool:
        """True for the process that writes ledger, metrics and checkpoints of the group."""
        return True

    def sum(self, count: int) -> int:
        """The sum of a count over all processes, exact; denominators of a loss are made of it."""
        return count

    def most(self, count: int) -> int:
        """The largest of all processes' counts: what one of them computes, all take part in."""
        return count

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share of a step's items."""
        return items


RANKS = Ranks()
"""The group that this process belongs to."""
