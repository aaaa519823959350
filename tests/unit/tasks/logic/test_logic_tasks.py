"""What holds of every task of logic and structure."""

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.tasks import TASKS, make_task
from groupwise.tasks.base import GeneratedTask
from groupwise.tasks.logic import LOGIC_TASKS
from groupwise.tasks.logic.sudoku import SudokuConfig
from groupwise.tasks.logic.takuzu import TakuzuConfig
from groupwise.tasks.logic.zebra import ZebraConfig
from groupwise.types import SPLITS, Outcome
from groupwise.verifiers import make_verifier

SIZES = {"num_problems": 60, "num_eval_problems": 6}
HARD = {
    "knights_knaves": {"min_people": 6, "max_people": 8, "max_depth": 2},
    "zebra": {"num_houses": 4, "num_attributes": 4, "ask": "table"},
    "game24": {"num_numbers": 3, "target": 12},
    "sudoku": {"size": 6, "min_empty": 16, "max_empty": 22},
    "takuzu": {"size": 4, "min_empty": 4, "max_empty": 11},
    "json_extraction": {"min_fields": 6, "max_fields": 8, "num_orders": 3},
    "instructions": {"min_rules": 5, "max_rules": 6, "max_paragraphs": 4},
    "nim": {"min_piles": 5, "max_piles": 6, "max_objects": 30},
    "tic_tac_toe": {"min_empty": 5, "max_empty": 7},
}
CASES = [(name, dials) for name in HARD for dials in ({}, HARD[name])]


def task_of(name: str, dials: dict[str, object]) -> GeneratedTask:
    config = TASKS[name].__annotations__["config"]
    task = make_task(parse(config, SIZES | dials))
    assert isinstance(task, GeneratedTask)
    return task


def test_every_task_is_here() -> None:
    assert {task.name for task in LOGIC_TASKS} == set(HARD)


@pytest.mark.parametrize(("name", "dials"), CASES)
def test_splits_are_disjoint_and_repeat(name: str, dials: dict[str, object]) -> None:
    task = task_of(name, dials)
    problems = [problem for split in SPLITS for problem in task.problems(split)]
    assert len({problem.id for problem in problems}) == len(problems) == 72
    assert len({problem.question for problem in problems}) == 72
    assert task_of(name, dials).problems("test") == task.problems("test")
    contents = {problem.id: content for content, problem in _first(task, 2000)}
    assert len({contents[problem.id] for problem in task.problems("train")}
               & {contents[problem.id] for problem in task.problems("test")}) == 0  # fmt: skip


def _first(task: GeneratedTask, count: int) -> list[tuple[str, object]]:
    return [candidate for candidate, _ in zip(task.candidates(), range(count), strict=False)]


@pytest.mark.parametrize(("name", "dials"), CASES)
def test_every_reference_answer_passes_and_another_problems_does_not(name: str, dials: dict[str, object]) -> None:
    task = task_of(name, dials)
    verifier = make_verifier(task.verifier)
    task.validate(verifier.verify)
    problems = task.problems("train")
    golds = [task.template.gold_answer(problem) for problem in problems]
    for problem, gold in zip(problems, golds, strict=True):
        assert verifier.verify(problem, gold).outcome is Outcome.CORRECT, problem
    swapped = [verifier.verify(problem, gold) for problem, gold in zip(problems, [*golds[7:], *golds[:7]], strict=True)]
    assert all(verdict.outcome.judged for verdict in swapped)
    assert sum(verdict.outcome is Outcome.CORRECT for verdict in swapped) <= 20  # small answers repeat


@pytest.mark.parametrize(
    ("config", "dials", "message"),
    [
        (SudokuConfig, {"size": 4, "max_empty": 12}, "at most 11 is allowed"),
        (SudokuConfig, {"min_empty": 9, "max_empty": 8}, "min_empty = 9 is above"),
        (SudokuConfig, {"size": 5}, "size = 5"),
        (TakuzuConfig, {"max_empty": 26}, "at most 25 is allowed"),
        (ZebraConfig, {"clues": ["same", "next_to"]}, "mirror image"),
        (TASKS["nim"].__annotations__["config"], {"min_piles": 5}, "min_piles = 5 is above"),
        (TASKS["instructions"].__annotations__["config"], {"min_rules": 5}, "min_rules = 5 is above"),
        (TASKS["json_extraction"].__annotations__["config"], {"min_fields": 5}, "min_fields = 5 is above"),
        (TASKS["knights_knaves"].__annotations__["config"], {"min_people": 5}, "min_people = 5 is above"),
    ],
)
def test_contradictory_dials_are_refused(config: type, dials: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(config, dials)


def test_a_small_space_says_how_many_problems_there_are() -> None:
    task = make_task(parse(TASKS["tic_tac_toe"].__annotations__["config"], {"num_problems": 9999}))
    with pytest.raises(ConfigError, match=r"has \d+ different problems in its train split"):
        task.problems("train")
