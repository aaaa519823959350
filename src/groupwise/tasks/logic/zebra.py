"""Zebra puzzles: people in a row of houses, clues, and one thing asked; exactly one table fits, and every clue counts.

Clues are added until an exact solver finds no second table, each one refuting the table found last; then every clue
that is not needed is dropped.
"""

from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.randomness import Draw, key, permutation
from groupwise.tasks.base import Candidate, GeneratedConfig
from groupwise.tasks.logic.drawn import DrawnTask
from groupwise.tasks.logic.zebra_clues import CLUE_KINDS, Clue, ClueKind, arrangements, true_clues
from groupwise.types import Problem

ATTRIBUTES: dict[str, tuple[str, tuple[str, ...]]] = {
    "name": ("{}", ("Anna", "Ben", "Clara", "David", "Emma", "Felix")),
    "drink": ("the person who drinks {}", ("tea", "coffee", "milk", "water", "juice", "cocoa")),
    "pet": ("the person with the {}", ("cat", "dog", "bird", "fish", "horse", "zebra")),
    "colour": ("the person in the {} house", ("red", "blue", "green", "white", "yellow", "black")),
    "job": ("the {}", ("baker", "doctor", "farmer", "pilot", "singer", "teacher")),
}
"""How a person is spoken of, and the values, by attribute; no value stands under two attributes."""

_RELATIONS: dict[ClueKind, str] = {
    "same": "{first} is {second}",
    "next_to": "{first} lives next to {second}",
    "left_of": "{first} lives directly to the left of {second}",
    "before": "{first} lives somewhere to the left of {second}",
    "at": "{first} lives in house {house}",
    "not_at": "{first} does not live in house {house}",
}


class ZebraConfig(GeneratedConfig):
    """Dials of the zebra task."""

    num_houses: int = Field(default=3, ge=2, le=6)
    """Houses in the row."""
    num_attributes: int = Field(default=3, ge=2, le=len(ATTRIBUTES))
    """What everyone differs in: the name and so many less one of drink, pet, colour, job."""
    clues: tuple[ClueKind, ...] = Field(default=CLUE_KINDS, min_length=1)
    """Kinds of clues. Without `same` an attribute is tied to others by places only."""
    ask: Literal["value", "table"] = "value"
    """Whether one value or the whole table is asked for."""

    @model_validator(mode="after")
    def _can_be_unique(self) -> Self:
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
    places = range(config.num_houses)
    houses = [house for _ in range(config.num_attributes) for house in draw.shuffled(places)]
    clues = draw_clues(index, houses, config)
    attributes = ["name", *draw.shuffled(list(ATTRIBUTES)[1:])][: config.num_attributes]
    values = [value for name in attributes for value in draw.shuffled(ATTRIBUTES[name][1])[: config.num_houses]]
    sentences = sorted(f"{_say(clue, attributes, values)}." for clue in clues)
    asked, reference = _ask(draw, clues, attributes, values, houses, config)
    question = "\n".join([_introduce(attributes, values), *map(_capital, draw.shuffled(sentences)), asked])
    content = " ".join(sentences)
    label = f"{config.num_houses} houses, {config.num_attributes} attributes"
    return content, Problem(f"zebra/{key('zebra', content, asked):016x}", question, reference, label)


def draw_clues(index: int, houses: Sequence[int], config: ZebraConfig) -> list[Clue]:
    """True clues that leave no other table and of which none can be spared; the kinds take turns."""
    kinds = [true_clues(houses, config.num_houses, kind) for kind in config.clues]
    shuffled = [
        [clues[place] for place in permutation(len(clues), "zebra clues", index, turn)]
        for turn, clues in enumerate(kinds)
    ]
    pool = [clue for clue in chain.from_iterable(zip_longest(*shuffled)) if clue is not None]
    chosen: list[Clue] = []
    while other := _another(houses, chosen, config):
        chosen.append(next(clue for clue in pool if not clue.holds(other)))
    for clue in list(chosen):
        fewer = [each for each in chosen if each != clue]
        if not _another(houses, fewer, config):
            chosen = fewer
    return chosen


def _another(houses: Sequence[int], clues: Sequence[Clue], config: ZebraConfig) -> tuple[int, ...] | None:
    """A table that fits the clues and is not the one meant."""
    fitting = arrangements(clues, config.num_houses, config.num_attributes)
    return next((found for found in fitting if found != tuple(houses)), None)


def _say(clue: Clue, attributes: Sequence[str], values: Sequence[str]) -> str:
    first = _person(clue.first, attributes, values)
    if clue.kind in ("at", "not_at"):
        return _RELATIONS[clue.kind].format(first=first, house=clue.second + 1)
    return _RELATIONS[clue.kind].format(first=first, second=_person(clue.second, attributes, values))


def _person(variable: int, attributes: Sequence[str], values: Sequence[str]) -> str:
    attribute = attributes[variable * len(attributes) // len(values)]
    return ATTRIBUTES[attribute][0].format(values[variable])


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _introduce(attributes: Sequence[str], values: Sequence[str]) -> str:
    size = len(values) // len(attributes)
    listed = [
        f"{attribute} ({', '.join(sorted(values[turn * size : (turn + 1) * size]))})"
        for turn, attribute in enumerate(attributes)
    ]
    return (
        f"{size} houses stand in a row, numbered 1 to {size} from left to right, with one person in each. "
        f"Each has a different {', '.join(listed[:-1])} and {listed[-1]}."
    )


def _ask(
    draw: Draw, clues: Sequence[Clue], attributes: Sequence[str], values: Sequence[str], houses: Sequence[int],
    config: ZebraConfig,
) -> tuple[str, str]:  # fmt: skip
    """The question's last line and its answer; a value that a clue states outright is not asked for."""
    size = config.num_houses
    if config.ask == "table":
        rows = [", ".join(values[v] for v in range(len(values)) if houses[v] == house) for house in range(size)]
        form = f"1: {', '.join(attributes)}; 2: ..."
        return f"Who lives where? Answer in the form {form}", "; ".join(f"{n}: {row}" for n, row in enumerate(rows, 1))
    told = {frozenset((clue.first, clue.second)) for clue in clues if clue.kind == "same"}
    pairs = [(v, w) for v in range(len(values)) for w in range(len(values)) if v // size != w // size]
    untold = [pair for pair in pairs if houses[pair[0]] == houses[pair[1]] and frozenset(pair) not in told]
    known, wanted = draw.choice(untold or pairs)
    return f"What is the {attributes[wanted // size]} of {_person(known, attributes, values)}?", values[wanted]
