"""Knights and knaves: knights tell the truth, knaves lie, and everyone says something; who is what?

Every puzzle has exactly one solution, found by trying all 2^n assignments of roles (Smullyan 1978, "What Is the Name
of This Book?"; as a reasoning benchmark: Xie et al. 2024, arXiv 2410.23123).
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.randomness import Draw, key
from groupwise.runs.jsonl import Record
from groupwise.tasks.base import Candidate, DrawnTask, GeneratedConfig
from groupwise.tasks.jsonl_records import read_file, text_of
from groupwise.tasks.logic.statements import OPERATORS, Operator, Statement, draw_statement, from_tuples, say, solutions
from groupwise.types import Problem

NAMES = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Iris", "Jack", "Kate", "Leo", "Mia", "Noah", "Olga",
    "Paul", "Quinn", "Rosa", "Sam", "Tess", "Uma", "Victor", "Wanda", "Yann", "Zoe",
)  # fmt: skip
MAX_PEOPLE = 10
_INTRODUCTION = "On an island live knights, who always tell the truth, and knaves, who always lie. You meet"
_QUESTION = "Who is what? Answer in the form: name is a knight, name is a knave."
_ASKED = " Answer in the form: name is a knight, name is a knave."
_MEANINGS = {
    "or": 'Here "or" allows both.',
    "implies": 'Here "if A then B" is false only when A is true and B is false.',
}
Puzzle = tuple[str, list[str], list[Statement], tuple[bool, ...]]
"""Question, names, one statement per person, and whether each is a knight."""


class KnightsKnavesConfig(GeneratedConfig):
    """Dials of the knights and knaves task."""

    min_people: int = Field(default=3, ge=2, le=MAX_PEOPLE)
    """Fewest people in a puzzle."""
    max_people: int = Field(default=4, ge=2, le=MAX_PEOPLE)
    """Most people in a puzzle."""
    max_depth: int = Field(default=1, ge=1, le=3)
    """Deepest statement: 0 accuses or praises one person, 1 joins or denies such claims, 2 joins those, and so on. At
    least 1: accusations alone fit a solution and its opposite."""
    operators: tuple[Operator, ...] = Field(default=OPERATORS, min_length=1)
    """How claims are joined; not by `not` alone, for the same reason."""
    paths: tuple[DataRef, ...] = ()
    """Files of puzzles with formal statements, read instead of generating any; the split is decided by content."""

    @model_validator(mode="after")
    def _check_ranges(self) -> Self:
        if self.min_people > self.max_people:
            raise ValueError(
                f"min_people = {self.min_people} is above max_people; at most {self.max_people} is allowed"
            )
        if set(self.operators) == {"not"}:
            raise ValueError("operators: `not` alone fits a solution and its opposite; at least one other is needed")
        return self


class KnightsKnaves(DrawnTask):
    """Puzzles such as `Ada says: Ben is a knave. Ben says: Ada is a knight or Ben is a knave.`."""

    name: ClassVar[str] = "knights_knaves"
    verifier: ClassVar[str] = "knights_knaves"
    Config = KnightsKnavesConfig
    config: KnightsKnavesConfig

    def candidates(self) -> Iterator[Candidate]:
        if self.config.paths:
            return (candidate(*puzzle) for path in self.config.paths for puzzle in read_puzzles(Path(path)))
        return super().candidates()

    def draw(self, index: int) -> Candidate:
        return draw_puzzle(Draw("knights_knaves", index), self.config)


def draw_puzzle(draw: Draw, config: KnightsKnavesConfig) -> Candidate:
    """A problem with exactly one solution."""
    return candidate(*drawn_puzzle(draw, config))


def drawn_puzzle(draw: Draw, config: KnightsKnavesConfig) -> Puzzle:
    """What is said, by whom, and who is what."""
    num_people = draw.integer(config.min_people, config.max_people)
    while True:
        statements = [_draw_claim(draw, person, num_people, config) for person in range(num_people)]
        assignments = solutions(statements)
        if len(assignments) == 1:
            break
    names = draw.shuffled(NAMES)[:num_people]
    return write_question(names, statements), names, statements, assignments[0]


def _draw_claim(draw: Draw, speaker: int, num_people: int, config: KnightsKnavesConfig) -> Statement:
    depth = draw.integer(0, config.max_depth)
    other_people = [person for person in range(num_people) if person != speaker]
    # "I am a knight" says nothing and nobody can say "I am a knave", but both may be part of a longer statement
    return draw_statement(draw, other_people if depth == 0 else range(num_people), depth, config.operators)


def write_question(names: Sequence[str], statements: Sequence[Statement]) -> str:
    """The puzzle in words, with the meaning of `or` and `if` where they occur."""
    speeches = [f"{name} says: {say(statement, names)}." for name, statement in zip(names, statements, strict=True)]
    meanings = [
        meaning
        for operator, meaning in _MEANINGS.items()
        if any(_uses(statement, operator) for statement in statements)
    ]
    introduction = f"{_INTRODUCTION} {', '.join(names[:-1])} and {names[-1]}."
    return "\n".join([introduction, *speeches, *meanings, _QUESTION])


def _uses(statement: Statement, operator: str) -> bool:
    return statement.operator == operator or any(_uses(part, operator) for part in statement.parts)


def candidate(
    question: str, names: Sequence[str], statements: Sequence[Statement], solution: Sequence[bool]
) -> Candidate:
    """The problem; its content is what is said, whatever the people are called."""
    content = "; ".join(say(statement, [str(person) for person in range(len(names))]) for statement in statements)
    roles = [
        f"{name} is a {'knight' if is_knight else 'knave'}" for name, is_knight in zip(names, solution, strict=True)
    ]
    name = f"knights_knaves/{key('knights_knaves', content):016x}"
    return content, Problem(name, question, ", ".join(roles), f"{len(names)} people")


def read_puzzles(path: Path) -> Iterator[Puzzle]:
    """The puzzles of a file with `quiz`, `names`, `statements` (nested tuples) and `solution`, each solved again.

    Raises:
        DataError: names the line that cannot be read, or whose solution is not the only one.
    """
    for record in read_file(path):
        names = record.fields.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise DataError(f"{record.place}: field 'names' is {names!r}; a list of names is needed")
        statements = _statements(record, len(names))
        assignments = solutions(statements)
        if assignments != [tuple(record.fields.get("solution", ()))]:
            raise DataError(
                f"{record.place}: the statements have the solutions {assignments}, the file says "
                f"{record.fields.get('solution')}; exactly that one is allowed"
            )
        yield text_of(record, "quiz") + _ASKED, names, statements, assignments[0]


def _statements(record: Record, num_people: int) -> list[Statement]:
    try:
        claims = ast.literal_eval(text_of(record, "statements"))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"{record.place}: field 'statements' is not a tuple written out: {error}") from None
    try:
        statements = [from_tuples(claim, num_people) for claim in claims]
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{record.place}: field 'statements' cannot be used: {error}") from None
    if len(statements) != num_people:
        raise DataError(
            f"{record.place}: {len(statements)} statements of {num_people} people; one per person is needed"
        )
    return statements
