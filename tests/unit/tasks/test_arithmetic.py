import re

import pytest

from groupwise.errors import ConfigError
from groupwise.tasks.arithmetic import Arithmetic, ArithmeticConfig, chain_steps, operands
from groupwise.tasks.base import Task
from groupwise.types import SPLITS

ALL_KINDS = ArithmeticConfig(
    kind="arithmetic",
    kinds=("product", "sum", "difference", "chain"),
    digits=(2, 3),
    num_problems=400,
    num_eval_problems=60,
)


def by_hand(question: str) -> int:
    """Evaluates without the code under test: signed terms, each a product of factors."""
    text = question.removeprefix("What is ").removesuffix("?").replace(" ", "").replace("-", "+-")
    total = 0
    for term in text.split("+"):
        product = 1
        for factor in term.split("×"):
            product *= int(factor)
        total += product
    return total


def pairs(task: Task, split: str) -> set[frozenset[str]]:
    return {frozenset(re.findall(r"\d+", problem.question)) for problem in task.problems(split)}  # type: ignore[arg-type]


def test_products_are_unswapped_across_splits() -> None:
    task = Arithmetic(ArithmeticConfig(kind="arithmetic"))
    train, dev, test = (pairs(task, split) for split in SPLITS)
    assert not train & dev
    assert not train & test
    assert not dev & test


@pytest.mark.parametrize("config", [ArithmeticConfig(kind="arithmetic"), ALL_KINDS], ids=["products", "all kinds"])
def test_references_are_right_and_ids_are_unique(config: ArithmeticConfig) -> None:
    task = Arithmetic(config)
    problems = [problem for split in SPLITS for problem in task.problems(split)]
    assert all(int(problem.reference) == by_hand(problem.question) >= 0 for problem in problems)
    assert len({problem.id for problem in problems}) == len(problems)
    assert [len(task.problems(split)) for split in SPLITS] == [
        config.num_problems, config.num_eval_problems, config.num_eval_problems
    ]  # fmt: skip


def test_problem_is_written_as_documented() -> None:
    task = Arithmetic(ArithmeticConfig(kind="arithmetic"))
    problem = task.find(task.problems("test")[0].id)
    left, right = re.findall(r"\d+", problem.question)
    assert problem.question == f"What is {left} × {right}?"
    assert problem.id == f"arithmetic/{left}x{right}"
    assert problem.difficulty == "product 2x2"
    assert all(number % 10 for number in operands(2))


def test_chain_multiplies_first() -> None:
    assert chain_steps([12, 5, 3, 4], ["+", "×", "-"]) == [("×", 5, 3, 15), ("+", 12, 15, 27), ("-", 27, 4, 23)]


def test_too_many_problems_is_an_error_that_says_how_many_there_are() -> None:
    with pytest.raises(ConfigError, match=r"num_problems = 7000.*at most 5958"):
        Arithmetic(ArithmeticConfig(kind="arithmetic", num_problems=7000)).problems("train")
