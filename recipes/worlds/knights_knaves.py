"""Knights and knaves: knights tell the truth, knaves lie, and everyone says something; who is what?

Every puzzle has exactly one solution, found by trying all 2^n assignments of roles (Smullyan 1978, "What Is the Name
of This Book?"; as a reasoning benchmark: Xie et al. 2024, arXiv 2410.23123).

A truth table is one integer: bit r is the truth under the r-th of the 2^n assignments, in which person i is a knight
when bit i of r is set.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from groupwise.config.schema import DataRef
from groupwise.errors import DataError
from groupwise.randomness import Draw, key
from groupwise.tasks.base import Candidate, GeneratedConfig, GeneratedTask
from groupwise.tasks.data_files import read_file, text_of
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import Finding
from groupwise.verifiers.exact import ExactVerifier, UnreadableError, shown

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
Operator = Literal["not", "and", "or", "implies", "iff"]
OPERATORS: tuple[Operator, ...] = ("not", "and", "or", "implies", "iff")
_FILE_OPERATORS = {"telling-truth": "knight", "lying": "knave", "->": "implies", "<=>": "iff"} | {
    name: name for name in ("not", "and", "or")
}
_NUM_PARTS = {"not": (1, 1), "implies": (2, 2), "iff": (2, 2), "and": (2, 9), "or": (2, 9)}


@dataclass(frozen=True, slots=True)
class Statement:
    """`knight` and `knave` are claims about a person; every other operator joins its parts."""

    operator: str
    person: int = 0
    parts: tuple["Statement", ...] = ()


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
    """Operators that join claims; not `not` alone, for the same reason."""
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


class KnightsKnaves(GeneratedTask):
    """Puzzles such as `Ada says: Ben is a knave. Ben says: Ada is a knight or Ben is a knave.`."""

    name: ClassVar[str] = "knights_knaves"
    verifier: ClassVar[str] = "knights_knaves"
    Config = KnightsKnavesConfig
    config: KnightsKnavesConfig

    def candidates(self) -> Iterator[Candidate]:
        if self.config.paths:
            return (candidate(*puzzle) for path in self.config.paths for puzzle in read_puzzles(Path(path)))
        return (draw_puzzle(Draw("knights_knaves", index), self.config) for index in count())


def draw_puzzle(draw: Draw, config: KnightsKnavesConfig) -> Candidate:
    """A problem with exactly one solution."""
    return candidate(*drawn_puzzle(draw, config))


def drawn_puzzle(draw: Draw, config: KnightsKnavesConfig) -> Puzzle:
    """Draw a puzzle with exactly one solution."""
    num_people = draw.integer(config.min_people, config.max_people)
    while True:
        statements = []
        for speaker in range(num_people):
            depth = draw.integer(0, config.max_depth)
            # "I am a knight" says nothing and nobody can say "I am a knave", but both may be part of a longer statement
            people = [person for person in range(num_people) if depth or person != speaker]
            statements.append(draw_statement(draw, people, depth, config.operators))
        assignments = solutions(statements)
        if len(assignments) == 1:
            break
    names = draw.shuffled(NAMES)[:num_people]
    return write_question(names, statements), names, statements, assignments[0]


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
    """The puzzles of a file with `quiz`, `names`, `statements` (nested tuples) and `solution`, each solved again."""
    for record in read_file(path):
        names = record.fields.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise DataError(f"{record.place}: field 'names' is {names!r}; a list of names is needed")
        try:
            claims = ast.literal_eval(text_of(record, "statements"))
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise DataError(f"{record.place}: field 'statements' is not a tuple written out: {error}") from None
        try:
            statements = [from_tuples(claim, len(names)) for claim in claims]
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"{record.place}: field 'statements' cannot be used: {error}") from None
        if len(statements) != len(names):
            raise DataError(
                f"{record.place}: {len(statements)} statements of {len(names)} people; one per person is needed"
            )
        assignments = solutions(statements)
        if assignments != [tuple(record.fields.get("solution", ()))]:
            raise DataError(
                f"{record.place}: the statements have the solutions {assignments}, the file says "
                f"{record.fields.get('solution')}; exactly that one is allowed"
            )
        yield text_of(record, "quiz") + _ASKED, names, statements, assignments[0]


def solutions(statements: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Every assignment (True: knight) under which exactly the knights say something true; statement i is person i's."""
    num_people = len(statements)
    all_rows = (1 << (1 << num_people)) - 1
    knights = [sum(1 << row for row in range(1 << num_people) if row >> person & 1) for person in range(num_people)]
    fitting_rows = all_rows
    for knight, statement in zip(knights, statements, strict=True):
        fitting_rows &= all_rows ^ knight ^ truth_table(statement, knights, all_rows)
    rows = [row for row in range(1 << num_people) if fitting_rows >> row & 1]
    return [tuple(bool(row >> person & 1) for person in range(num_people)) for row in rows]


def truth_table(statement: Statement, knights: Sequence[int], all_rows: int) -> int:
    """The statement's truth table, from the tables of `person i is a knight`."""
    if statement.operator in ("knight", "knave"):
        table = knights[statement.person]
        return table if statement.operator == "knight" else all_rows ^ table
    head, *tail = (truth_table(part, knights, all_rows) for part in statement.parts)
    match statement.operator:
        case "not":
            return all_rows ^ head
        case "and":
            return reduce(int.__and__, tail, head)
        case "or":
            return reduce(int.__or__, tail, head)
        case "implies":
            return all_rows ^ head | tail[0]
        case "iff":
            return all_rows ^ head ^ tail[0]
    raise ValueError(f"unknown operator {statement.operator!r}")


def say(statement: Statement, names: Sequence[str]) -> str:
    """The statement in words; parts that have parts are put in parentheses, so that there is one reading."""
    if statement.operator in ("knight", "knave"):
        return f"{names[statement.person]} is a {statement.operator}"
    parts = [f"({say(part, names)})" if part.parts else say(part, names) for part in statement.parts]
    match statement.operator:
        case "not":
            return f"it is not true that {parts[0]}"
        case "implies":
            return f"if {parts[0]} then {parts[1]}"
        case "iff":
            return f"{parts[0]} if and only if {parts[1]}"
        case word:
            return f" {word} ".join(parts)


def draw_statement(draw: Draw, people: Sequence[int], depth: int, operators: Sequence[Operator]) -> Statement:
    """A random statement of at most this depth; its parts are about different people, so none is empty talk."""
    if depth == 0:
        return Statement(draw.choice(("knight", "knave")), draw.choice(people))
    operator = draw.choice(operators)
    if operator == "not" or len(people) < 2:
        return Statement("not", parts=(draw_statement(draw, people, depth - 1, operators),))
    shuffled_people = draw.shuffled(people)
    halves = shuffled_people[: len(shuffled_people) // 2], shuffled_people[len(shuffled_people) // 2 :]
    return Statement(operator, parts=tuple(draw_statement(draw, half, depth - 1, operators) for half in halves))


def from_tuples(form: Any, num_people: int) -> Statement:
    """A statement from nested tuples such as `('or', ('telling-truth', 1), ('lying', 2))`."""
    operator = _FILE_OPERATORS.get(form[0], "") if isinstance(form, tuple) and form else ""
    if operator in ("knight", "knave") and len(form) == 2 and form[1] in range(num_people):
        return Statement(operator, form[1])
    min_parts, max_parts = _NUM_PARTS.get(operator, (1, 0))
    if not min_parts <= len(form) - 1 <= max_parts:
        raise ValueError(f"{form!r} is not a statement about {num_people} people")
    return Statement(operator, parts=tuple(from_tuples(part, num_people) for part in form[1:]))


_SEPARATOR = re.compile(r"[,;\n]|\band\b", re.IGNORECASE)
_CLAIM = re.compile(
    r"(?:\(?[0-9]{1,2}[).:] ?)?(?P<name>[^:=]{1,60}?) ?(?: is(?: an?)?|:|=) ?(?P<role>knight|knave)", re.IGNORECASE
)


class KnightsKnavesVerifier(ExactVerifier):
    """The role of everyone named in the reference answer, each named once and nothing else said.

    Reads `Zoey is a knight, Ella is a knave` (also `Zoey: knight`, numbered lines, `and`) in any order and case.
    """

    def find(self, problem: Problem, answer: str) -> Finding:
        try:
            reference = read_roles(problem.reference)
        except UnreadableError as error:
            return Finding(Outcome.CRASHED, f"the reference answer of problem {problem.id} is unreadable: {error}")
        roles, fault = read_roles(answer), ""
        if name := next((n for n in [*reference, *roles] if roles.get(n) != reference.get(n)), None):
            role, true_role = roles.get(name, "nothing"), reference.get(name, "asked about")
            fault = f"{shown(name)} is said to be {role}, not {true_role}"
        canonical = ", ".join(f"{name}: {role}" for name, role in sorted(roles.items()))
        return Finding(
            Outcome.WRONG if fault else Outcome.CORRECT, fault or "it equals the reference answer", canonical
        )


def read_roles(text: str) -> dict[str, str]:
    """Return the roles in an answer by name, both in lower case; raise UnreadableError."""
    roles = dict[str, str]()
    # without commands and marks of style; `\\` breaks the line
    text = re.sub(r"\\(?:text|math)[a-z]*|[{}$*]", "", text.replace("\\\\", "\n"))
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    for claim in filter(None, map(str.strip, _SEPARATOR.split(text.rstrip(".")))):
        if (match := _CLAIM.fullmatch(claim)) is None:
            raise UnreadableError(f"{shown(claim)} is not of the form `name is a knight` or `name is a knave`")
        if (name := match["name"].casefold()) in roles:
            raise UnreadableError(f"{shown(name)} is named twice")
        roles[name] = match["role"].lower()
    return roles
