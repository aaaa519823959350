"""Zebra puzzles: people in a row of houses, clues, and one question; exactly one table fits, and every clue is needed.

Clues are added until an exact solver finds no second table, each one refuting the table found last; then every clue
that is not needed is dropped. The solver is exact: the domain of a value is a bit mask of the houses it may live in,
narrowed by clues, then branched on; values of one attribute live in different houses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw, key, permutation
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig
from groupwise.types import Problem

ATTRIBUTES: dict[str, tuple[str, tuple[str, ...]]] = {
    "name": ("{}", ("Anna", "Ben", "Clara", "David", "Emma", "Felix")),
    "drink": ("the person who drinks {}", ("tea", "coffee", "milk", "water", "juice", "cocoa")),
    "pet": ("the person with the {}", ("cat", "dog", "bird", "fish", "horse", "zebra")),
    "colour": ("the person in the {} house", ("red", "blue", "green", "white", "yellow", "black")),
    "job": ("the {}", ("baker", "doctor", "farmer", "pilot", "singer", "teacher")),
}
"""How a person is spoken of, and the values, by attribute; no value belongs to two attributes."""
ClueKind = Literal["same", "next_to", "left_of", "before", "at", "not_at"]
_RELATIONS: dict[ClueKind, str] = {
    "same": "{first} is {second}",
    "next_to": "{first} lives next to {second}",
    "left_of": "{first} lives directly to the left of {second}",
    "before": "{first} lives somewhere to the left of {second}",
    "at": "{first} lives in house {house}",
    "not_at": "{first} does not live in house {house}",
}
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
        house = houses[self.first]
        if self.kind in ("at", "not_at"):
            return (house == self.second) == (self.kind == "at")
        distance = houses[self.second] - house
        return {"same": distance == 0, "next_to": abs(distance) == 1, "left_of": distance == 1, "before": distance > 0}[
            self.kind
        ]


class ZebraConfig(GeneratedConfig):
    """Dials of the zebra task."""

    num_houses: int = Field(default=3, ge=2, le=6)
    """Houses in the row."""
    num_attributes: int = Field(default=3, ge=2, le=len(ATTRIBUTES))
    """Ways in which people differ: the name, and `num_attributes` - 1 of drink, pet, colour and job."""
    clues: tuple[ClueKind, ...] = Field(default=CLUE_KINDS, min_length=1)
    """Kinds of clues. Without `same` an attribute is tied to others by positions only."""
    ask: Literal["value", "table"] = "value"
    """Whether one value or the whole table is asked for."""

    @model_validator(mode="after")
    def _check_clues(self) -> Self:
        if set(self.clues) <= {"same", "next_to"}:
            raise ValueError(
                "clues `same` and `next_to` alone fit a table and its mirror image; at least one of "
                f"{', '.join(kind for kind in CLUE_KINDS if kind not in ('same', 'next_to'))} is needed"
            )
        return self


class Zebra(DrawnTask):
    """Puzzles such as `Anna lives next to the person who drinks tea. ... What is the pet of Anna?`."""

    name: ClassVar[str] = "zebra"
    verifier: ClassVar[str] = "zebra"
    Config = ZebraConfig
    config: ZebraConfig

    def draw(self, index: int) -> Candidate:
        return draw_zebra(index, self.config)


def draw_zebra(index: int, config: ZebraConfig) -> Candidate:
    """The puzzle of a number; its content is its clues."""
    draw = Draw("zebra", config.num_houses, config.num_attributes, index)
    house_numbers = range(config.num_houses)
    houses = [house for _ in range(config.num_attributes) for house in draw.shuffled(house_numbers)]
    clues = draw_clues(index, houses, config)
    attributes = ["name", *draw.shuffled(list(ATTRIBUTES)[1:])][: config.num_attributes]
    values = [value for name in attributes for value in draw.shuffled(ATTRIBUTES[name][1])[: config.num_houses]]
    sentences = sorted(f"{_say(clue, attributes, values)}." for clue in clues)
    last_line, reference = _ask(draw, clues, attributes, values, houses, config)
    question = "\n".join(
        [_introduce(attributes, values), *(text[0].upper() + text[1:] for text in draw.shuffled(sentences)), last_line]
    )
    content = " ".join(sentences)
    label = f"{config.num_houses} houses, {config.num_attributes} attributes"
    return content, Problem(f"zebra/{key('zebra', content, last_line):016x}", question, reference, label)


def draw_clues(index: int, houses: Sequence[int], config: ZebraConfig) -> list[Clue]:
    """True clues that leave no other table, none of them superfluous; the kinds take turns."""
    kinds = [true_clues(houses, config.num_houses, kind) for kind in config.clues]
    columns = [
        [clues[number] for number in permutation(len(clues), "zebra clues", index, turn)]
        for turn, clues in enumerate(kinds)
    ]
    pool = [clue for clue in chain.from_iterable(zip_longest(*columns)) if clue is not None]
    selection: list[Clue] = []
    while table := _another(houses, selection, config):
        selection.append(next(clue for clue in pool if not clue.holds(table)))
    for clue in list(selection):
        subset = [candidate for candidate in selection if candidate != clue]
        if not _another(houses, subset, config):
            selection = subset
    return selection


def _another(houses: Sequence[int], clues: Sequence[Clue], config: ZebraConfig) -> tuple[int, ...] | None:
    """A table that fits the clues and is not the right one."""
    tables = arrangements(clues, config.num_houses, config.num_attributes)
    return next((table for table in tables if table != tuple(houses)), None)


def _say(clue: Clue, attributes: Sequence[str], values: Sequence[str]) -> str:
    person = _person(clue.first, attributes, values)
    if clue.kind in ("at", "not_at"):
        return _RELATIONS[clue.kind].format(first=person, house=clue.second + 1)
    return _RELATIONS[clue.kind].format(first=person, second=_person(clue.second, attributes, values))


def _person(variable: int, attributes: Sequence[str], values: Sequence[str]) -> str:
    attribute = attributes[variable * len(attributes) // len(values)]
    return ATTRIBUTES[attribute][0].format(values[variable])


def _introduce(attributes: Sequence[str], values: Sequence[str]) -> str:
    size = len(values) // len(attributes)
    descriptions = [
        f"{attribute} ({', '.join(sorted(values[turn * size : (turn + 1) * size]))})"
        for turn, attribute in enumerate(attributes)
    ]
    return (
        f"{size} houses stand in a row, numbered 1 to {size} from left to right, with one person in each. "
        f"Each has a different {', '.join(descriptions[:-1])} and {descriptions[-1]}."
    )


def _ask(
    draw: Draw, clues: Sequence[Clue], attributes: Sequence[str], values: Sequence[str], houses: Sequence[int],
    config: ZebraConfig,
) -> tuple[str, str]:  # fmt: skip
    """The question's last line and its answer; no clue states it outright, if possible."""
    size = config.num_houses
    if config.ask == "table":
        rows = [", ".join(values[v] for v in range(len(values)) if houses[v] == house) for house in range(size)]
        form = f"1: {', '.join(attributes)}; 2: ..."
        return f"Who lives where? Answer in the form {form}", "; ".join(f"{n}: {row}" for n, row in enumerate(rows, 1))
    stated_pairs = {frozenset((clue.first, clue.second)) for clue in clues if clue.kind == "same"}
    pairs = [(v, w) for v in range(len(values)) for w in range(len(values)) if v // size != w // size]
    inferred_pairs = [
        pair for pair in pairs if houses[pair[0]] == houses[pair[1]] and frozenset(pair) not in stated_pairs
    ]
    variable, asked_variable = draw.choice(inferred_pairs or pairs)
    question = f"What is the {attributes[asked_variable // size]} of {_person(variable, attributes, values)}?"
    return question, values[asked_variable]


def true_clues(houses: Sequence[int], num_houses: int, kind: ClueKind) -> list[Clue]:
    """Every true clue of a kind about different attributes; symmetric relations appear once."""
    if kind in ("at", "not_at"):
        clues = [Clue(kind, variable, house) for variable in range(len(houses)) for house in range(num_houses)]
    else:
        pairs = [(left, right) for left in range(len(houses)) for right in range(len(houses))]
        clues = [Clue(kind, left, right) for left, right in pairs if left // num_houses != right // num_houses]
        if kind in ("same", "next_to"):
            clues = [clue for clue in clues if clue.first < clue.second]
    return [clue for clue in clues if clue.holds(houses)]


def arrangements(clues: Sequence[Clue], num_houses: int, num_attributes: int) -> Iterator[tuple[int, ...]]:
    """Every solution, by backtracking: the house of each variable."""
    all_houses = (1 << num_houses) - 1
    yield from _search([all_houses] * (num_houses * num_attributes), clues, num_houses)


def _search(domains: list[int], clues: Sequence[Clue], num_houses: int) -> Iterator[tuple[int, ...]]:
    if not _narrow(domains, clues, num_houses):
        return
    open_variables = [variable for variable, domain in enumerate(domains) if domain & (domain - 1)]
    if not open_variables:
        yield tuple(domain.bit_length() - 1 for domain in domains)
        return
    variable = min(open_variables, key=lambda candidate: domains[candidate].bit_count())
    for house in range(num_houses):
        if domains[variable] >> house & 1:
            yield from _search([*domains[:variable], 1 << house, *domains[variable + 1 :]], clues, num_houses)


def _narrow(domains: list[int], clues: Sequence[Clue], num_houses: int) -> bool:
    """Remove houses that no solution allows until nothing changes; False when a variable has none left."""
    previous_domains: list[int] = []
    while previous_domains != domains:
        previous_domains = list(domains)
        for clue in clues:
            _apply(clue, domains, (1 << num_houses) - 1)
        for start in range(0, len(domains), num_houses):
            _separate(domains, range(start, start + num_houses))
        if not all(domains):
            return False
    return True


def _separate(domains: list[int], group: range) -> None:
    """A house taken by one value of an attribute is closed to the others."""
    for variable in group:
        if domains[variable].bit_count() == 1:
            for sibling in group:
                if sibling != variable:
                    domains[sibling] &= ~domains[variable]


def _apply(clue: Clue, domains: list[int], all_houses: int) -> None:
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
            domains[second] &= all_houses & ~((domains[first] & -domains[first]) * 2 - 1)  # right of the first's first
