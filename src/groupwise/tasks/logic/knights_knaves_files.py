"""Files of knights-and-knaves puzzles: `quiz`, `names`, `statements` (nested tuples) and `solution` on each line."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.errors import DataError
from groupwise.tasks.jsonl_records import Record, read_file, text_of
from groupwise.tasks.logic.statements import Statement, from_tuples, solutions

Puzzle = tuple[str, list[str], list[Statement], tuple[bool, ...]]
"""Question, names, one statement per person, and whether each is a knight."""

_ASKED = " Answer in the form: name is a knight, name is a knave."


def read_puzzles(path: Path) -> Iterator[Puzzle]:
    """The puzzles of a file, each solved again.

    Raises:
        DataError: names the line that cannot be read, or whose solution is not the only one.
    """
    for record in read_file(path):
        names = record.fields.get("names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
            raise DataError(f"{record.where}: field 'names' is {names!r}; a list of names is needed")
        statements = _statements(record, len(names))
        found = solutions(statements)
        if found != [tuple(record.fields.get("solution", ()))]:
            raise DataError(
                f"{record.where}: the statements have the solutions {found}, the file says "
                f"{record.fields.get('solution')}; exactly that one is allowed"
            )
        yield text_of(record, "quiz") + _ASKED, names, statements, found[0]


def _statements(record: Record, num_people: int) -> list[Statement]:
    form = _literal(record)
    try:
        statements = [from_tuples(each, num_people) for each in form]
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{record.where}: field 'statements' cannot be used: {error}") from None
    if len(statements) != num_people:
        raise DataError(f"{record.where}: {len(statements)} statements of {num_people} people; one each is needed")
    return statements


def _literal(record: Record) -> Any:
    try:
        return ast.literal_eval(text_of(record, "statements"))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"{record.where}: field 'statements' is not a tuple written out: {error}") from None
