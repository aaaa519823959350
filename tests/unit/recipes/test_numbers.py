"""Calculations: answers against a slow evaluation, disjoint splits, the verifier's view of them."""

import re
from fractions import Fraction
from typing import get_args

import pytest

from calculations import NumberKind
from groupwise.tasks import make_task
from groupwise.types import SPLITS, Problem
from groupwise.verifiers import make_verifier

KINDS = get_args(NumberKind)


def slow_answer(problem: Problem) -> Fraction:
    """From the question's text alone."""
    if "remainder" in problem.question:
        dividend, divisor = map(int, re.findall(r"\d+", problem.question))
        while dividend >= divisor:
            dividend -= divisor
        return Fraction(dividend)
    first, *rest = problem.question.removeprefix("What is ").removesuffix("?").split()
    value = Fraction(first)
    for sign, number in zip(rest[::2], rest[1::2], strict=True):
        value = {"+": value.__add__, "-": value.__sub__, "×": value.__mul__}[sign](Fraction(number))
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_answers_splits_and_verifier(kind: str) -> None:
    task = make_task({"kind": "numbers", "kinds": [kind], "num_problems": 300, "num_eval_problems": 60})
    contents = []
    for split in SPLITS:
        problems = task.problems(split)
        assert all(Fraction(problem.reference) == slow_answer(problem) for problem in problems)
        terms = [problem.question[8:-1] for problem in problems]
        # the order of a difference, a remainder or a signed chain counts; elsewhere it does not
        contents.append({term if "-" in term or "÷" in term else " ".join(sorted(term.split())) for term in terms})
    assert sum(map(len, contents)) == len(set.union(*contents))
    with make_verifier("number") as verifier:
        task.validate(verifier.verify)


def test_signed_chains_go_below_zero() -> None:
    task = make_task({"kind": "numbers", "kinds": ["signed_chain"], "num_problems": 200})
    answers = [int(problem.reference) for problem in task.problems("train")]
    assert min(answers) < 0 < max(answers)


def test_small_products_have_small_digits() -> None:
    task = make_task({"kind": "numbers", "kinds": ["small_product"], "num_problems": 200})
    for problem in task.problems("train"):
        assert re.fullmatch(r"What is [1-6]{3} × [1-6]{2}\?", problem.question)
