"""Knights and knaves: truth tables against a slow evaluation, the published puzzles, generated ones."""

import ast
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import DataError
from groupwise.tasks import make_task
from groupwise.types import Outcome, Problem
from groupwise.verifiers import make_verifier
from knights_knaves import Statement, from_tuples, read_puzzles, say, solutions, write_question

DATA = Path(__file__).parents[5] / "shared/data/knights_knaves"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the published puzzles are not here")


def holds(form: Any, roles: tuple[bool, ...]) -> bool:
    """A slow evaluation of the file's form, independent of the program's."""
    operator, *parts = form
    if operator in ("telling-truth", "lying"):
        return roles[parts[0]] == (operator == "telling-truth")
    values = [holds(part, roles) for part in parts]
    return {
        "not": not values[0], "and": all(values), "or": any(values),
        "->": not values[0] or values[-1], "<=>": values[0] == values[-1],
    }[operator]  # fmt: skip


def slow_solutions(forms: Any) -> list[tuple[bool, ...]]:
    found = product((False, True), repeat=len(forms))
    return [
        roles for roles in found if all(holds(form, roles) == role for form, role in zip(forms, roles, strict=True))
    ]


@needs_data
def test_the_published_solutions_are_the_only_ones() -> None:
    """5,000 puzzles by truth tables, and those of up to five people (3,000) once more by slow evaluation."""
    files = sorted(DATA.glob("*.jsonl"))
    solved = {path.name: list(read_puzzles(path)) for path in files}
    assert sum(map(len, solved.values())) == 5000
    slow = 0
    for path in files:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [list(puzzle[3]) for puzzle in solved[path.name]] == [row["solution"] for row in rows]
        for row in rows if path.name[0] in "345" else []:
            assert slow_solutions(ast.literal_eval(row["statements"])) == [tuple(row["solution"])]
            slow += 1
    assert slow == 3000


@needs_data
def test_published_answers_pass_the_verifier_in_both_of_their_spellings() -> None:
    verifier = make_verifier("knights_knaves")
    for row in map(json.loads, (DATA / "7ppl_test.jsonl").read_text().splitlines()):
        problem = Problem("p", row["quiz"], row["solution_text"])
        for text in (row["solution_text"], row["solution_text_format"]):
            assert verifier.verify(problem, f"\\boxed{{{text}}}").outcome is Outcome.CORRECT


@needs_data
def test_the_task_loads_files() -> None:
    paths = [str(DATA / "3ppl_train.jsonl"), str(DATA / "4ppl_train.jsonl")]
    task = make_task({"kind": "knights_knaves", "paths": paths, "num_problems": 1000, "num_eval_problems": 30})
    task.validate(make_verifier("knights_knaves").verify)
    assert task.problems("train")[0].question.startswith("A very special island")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solution": [True, False]}, "exactly that one is allowed"),
        ({"statements": "(('lying', 1), ('lying', 0))"}, "the statements have the solutions"),
        ({"statements": "(('lying', 1),)"}, "1 statements of 2 people"),
        ({"statements": "(('lying', 1), ('lying', 2))"}, "is not a statement about 2 people"),
        ({"statements": "(('lying', 1), ('xor', ('lying', 0), ('lying', 1)))"}, "is not a statement"),
        ({"statements": "(('lying', 1), ('not', ('lying', 0), ('lying', 1)))"}, "is not a statement"),
        ({"statements": "__import__('os')"}, "not a tuple written out"),
        ({"statements": "7"}, "cannot be used"),
        ({"names": "AB"}, "a list of names"),
    ],
)
def test_a_faulty_file_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    row = {"quiz": "?", "names": ["A", "B"], "solution": [False, True],
           "statements": "(('lying', 1), ('telling-truth', 1))"}  # fmt: skip
    path = tmp_path / "puzzles.jsonl"
    path.write_text(json.dumps(row | {"statements": "(('lying', 1), ('lying', 0))", "solution": [1, 0]} | changes))
    with pytest.raises(DataError, match=r"puzzles\.jsonl, line 1") as caught:
        list(read_puzzles(path))
    assert message in str(caught.value)


def test_statements_in_words_have_one_reading() -> None:
    form = ("->", ("not", ("and", ("telling-truth", 0), ("lying", 1))), ("<=>", ("lying", 2), ("lying", 0)))
    text = say(from_tuples(form, 3), ["A", "B", "C"])
    assert text == (
        "if (it is not true that (A is a knight and B is a knave)) then (C is a knave if and only if A is a knave)"
    )


def test_a_hand_worked_puzzle() -> None:
    """A: B is a knave. B: both of us are knights. If B told the truth, A would be a knight and B a knave."""
    both = Statement("and", parts=(Statement("knight", 0), Statement("knight", 1)))
    assert solutions([Statement("knave", 1), both]) == [(True, False)]
    assert solutions([Statement("knave", 1), Statement("knave", 0)]) == [(True, False), (False, True)]
    assert solutions([Statement("knave", 0), Statement("knave", 0)]) == []  # nobody can call himself a knave


def test_words_are_explained_where_they_occur() -> None:
    accusation = Statement("knave", 1)
    either = Statement("or", parts=(accusation, Statement("knight", 0)))
    assert '"or" allows both' in write_question(["A", "B"], [accusation, either])
    assert '"or" allows both' not in write_question(["A", "B"], [accusation, accusation])
