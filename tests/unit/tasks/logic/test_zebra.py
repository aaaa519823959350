"""Zebra puzzles, solved again from their words alone by trying every table."""

import re
from itertools import permutations, product

import pytest

from groupwise.config import parse
from groupwise.tasks.logic.zebra import ATTRIBUTES, CLUE_KINDS, Clue, Zebra, ZebraConfig, arrangements, true_clues

PEOPLE = {phrase.format(value).lower(): value for phrase, values in ATTRIBUTES.values() for value in values}
_RELATIONS = {
    "is": lambda a, b: a == b,
    "lives next to": lambda a, b: abs(a - b) == 1,
    "lives directly to the left of": lambda a, b: a + 1 == b,
    "lives somewhere to the left of": lambda a, b: a < b,
}


def values_of(question: str) -> list[list[str]]:
    return [listed.split(", ") for listed in re.findall(r"\(([^)]*)\)", question.split("\n")[0])]


def holds(sentence: str, house: dict[str, int]) -> bool:
    text = sentence.removesuffix(".").lower()
    if match := re.fullmatch(r"(.+) (lives|does not live) in house (\d)", text):
        return (house[PEOPLE[match[1]]] == int(match[3])) == (match[2] == "lives")
    relations = "|".join(sorted(_RELATIONS, key=len, reverse=True))
    match = re.fullmatch(rf"({'|'.join(PEOPLE)}) ({relations}) ({'|'.join(PEOPLE)})", text)
    assert match, sentence
    return _RELATIONS[match[2]](house[PEOPLE[match[1]]], house[PEOPLE[match[3]]])


def tables(question: str, sentences: list[str]) -> list[dict[str, int]]:
    values = values_of(question)
    orders = product(*(permutations(range(1, len(row) + 1)) for row in values))
    houses = [
        {
            value: number
            for row, order in zip(values, each, strict=True)
            for value, number in zip(row, order, strict=True)
        }
        for each in orders
    ]
    return [house for house in houses if all(holds(sentence, house) for sentence in sentences)]


@pytest.mark.parametrize("ask", ["value", "table"])
def test_one_table_fits_the_words_and_every_clue_is_needed(ask: str) -> None:
    task = Zebra(parse(ZebraConfig, {"kind": "zebra", "num_problems": 40, "ask": ask}))
    for problem in task.problems("train"):
        _, *sentences, asked = problem.question.split("\n")
        (table,) = tables(problem.question, sentences)
        for sentence in sentences:
            assert len(tables(problem.question, [each for each in sentences if each != sentence])) > 1
        if ask == "table":
            for row in problem.reference.split("; "):
                number, _, values = row.partition(": ")
                assert {table[value] for value in values.split(", ")} == {int(number)}
        else:
            match = re.fullmatch(r"What is the (\w+) of (.+)\?", asked)
            assert match
            assert problem.reference in ATTRIBUTES[match[1]][1]
            assert table[problem.reference] == table[PEOPLE[match[2].lower()]]


@pytest.mark.parametrize("kind", CLUE_KINDS)
def test_each_kind_of_clue_narrows_to_exactly_what_it_allows(kind: str) -> None:
    """The solver against trying every table of 4 houses and 2 attributes, clue by clue."""
    every = [(*first, *second) for first in permutations(range(4)) for second in permutations(range(4))]
    for clue in true_clues(every[77], 4, kind):  # type: ignore[arg-type]
        assert sorted(arrangements([clue], 4, 2)) == sorted(each for each in every if clue.holds(each))


def test_contradictory_clues_have_no_table() -> None:
    assert list(arrangements([Clue("before", 0, 3), Clue("before", 3, 0)], 3, 2)) == []


@pytest.mark.parametrize("kind", [kind for kind in CLUE_KINDS if kind not in ("same", "next_to")])
def test_one_kind_of_clue_can_be_enough(kind: str) -> None:
    task = Zebra(parse(ZebraConfig, {"kind": "zebra", "num_problems": 5, "clues": [kind], "num_houses": 4}))
    assert len(task.problems("train")) == 5
