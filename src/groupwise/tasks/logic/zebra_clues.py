"""Clues of zebra puzzles and an exact solver: domains are bit masks of houses, narrowed by clues, then branched on.

A variable is a value of an attribute; its house is what is asked. Values of one attribute live in different houses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

ClueKind = Literal["same", "next_to", "left_of", "before", "at", "not_at"]
CLUE_KINDS: tuple[ClueKind, ...] = ("same", "next_to", "left_of", "before", "at", "not_at")


@dataclass(frozen=True, slots=True)
class Clue:
    """`same`, `next_to`, `left_of` (directly), `before` (somewhere left): of two variables; `at`, `not_at`: a house."""

    kind: ClueKind
    first: int
    """A variable: attribute times number of houses plus value."""
    second: int
    """The other variable, or a house from 0."""

    def holds(self, houses: Sequence[int]) -> bool:
        """Whether it is true of a solution, the house of every variable."""
        first = houses[self.first]
        if self.kind in ("at", "not_at"):
            return (first == self.second) == (self.kind == "at")
        distance = houses[self.second] - first
        return {"same": distance == 0, "next_to": abs(distance) == 1, "left_of": distance == 1, "before": distance > 0}[
            self.kind
        ]


def true_clues(houses: Sequence[int], num_houses: int, kind: ClueKind) -> list[Clue]:
    """Every true clue of a kind about different attributes; relations that are symmetric stand once."""
    if kind in ("at", "not_at"):
        clues = [Clue(kind, variable, house) for variable in range(len(houses)) for house in range(num_houses)]
    else:
        pairs = [(first, second) for first in range(len(houses)) for second in range(len(houses))]
        clues = [Clue(kind, first, second) for first, second in pairs if first // num_houses != second // num_houses]
        if kind in ("same", "next_to"):
            clues = [clue for clue in clues if clue.first < clue.second]
    return [clue for clue in clues if clue.holds(houses)]


def arrangements(clues: Sequence[Clue], num_houses: int, num_attributes: int) -> Iterator[tuple[int, ...]]:
    """Every solution, by backtracking: the house of each variable."""
    everywhere = (1 << num_houses) - 1
    yield from _search([everywhere] * (num_houses * num_attributes), clues, num_houses)


def _search(domains: list[int], clues: Sequence[Clue], num_houses: int) -> Iterator[tuple[int, ...]]:
    if not _narrow(domains, clues, num_houses):
        return
    open_variables = [variable for variable, domain in enumerate(domains) if domain & (domain - 1)]
    if not open_variables:
        yield tuple(domain.bit_length() - 1 for domain in domains)
        return
    variable = min(open_variables, key=lambda each: domains[each].bit_count())
    for house in range(num_houses):
        if domains[variable] >> house & 1:
            yield from _search([*domains[:variable], 1 << house, *domains[variable + 1 :]], clues, num_houses)


def _narrow(domains: list[int], clues: Sequence[Clue], num_houses: int) -> bool:
    """Remove houses that no solution allows until nothing changes; False when a variable has none left."""
    before: list[int] = []
    while before != domains:
        before = list(domains)
        for clue in clues:
            _apply(clue, domains, (1 << num_houses) - 1)
        for start in range(0, len(domains), num_houses):
            _separate(domains, range(start, start + num_houses))
        if not all(domains):
            return False
    return True


def _separate(domains: list[int], group: range) -> None:
    """A house taken by one value of an attribute is open to no other."""
    for variable in group:
        if domains[variable].bit_count() == 1:
            for other in group:
                if other != variable:
                    domains[other] &= ~domains[variable]


def _apply(clue: Clue, domains: list[int], everywhere: int) -> None:
    """Narrow the domains of a clue's variables."""
    first, second = clue.first, clue.second
    match clue.kind:
        case "at":
            domains[first] &= 1 << second
        case "not_at":
            domains[first] &= ~(1 << second)
        case "same":
            domains[first] = domains[second] = domains[first] & domains[second]
        case "next_to":
            domains[first] &= domains[second] << 1 | domains[second] >> 1
            domains[second] &= domains[first] << 1 | domains[first] >> 1
        case "left_of":
            domains[first] &= domains[second] >> 1
            domains[second] &= domains[first] << 1
        case "before" if domains[first] and domains[second]:
            domains[first] &= (1 << domains[second].bit_length() - 1) - 1  # left of the other's last house
            domains[second] &= everywhere & ~((domains[first] & -domains[first]) * 2 - 1)  # right of the first's first
