import re

import pytest

from groupwise.tasks.base import split_of
from groupwise.types import SPLITS, Problem
from word_problems import FAMILIES, Language, WordProblems, WordProblemsConfig

TASK = WordProblems(WordProblemsConfig(kind="word_problems", num_problems=1500, num_eval_problems=100))


def everything() -> list[Problem]:
    return [problem for split in SPLITS for problem in TASK.problems(split)]


def numbers_in(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


def test_splits_are_disjoint_and_follow_the_question() -> None:
    questions = [problem.question for problem in everything()]
    assert len(set(questions)) == len(questions)
    assert all(split_of(problem.question) == split for split in SPLITS for problem in TASK.problems(split))


def test_steps_are_exact_and_lead_from_the_story_to_the_answer() -> None:
    compute = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "×": lambda a, b: a * b, "÷": lambda a, b: a / b}
    for problem in everything():
        known = numbers_in(problem.question)
        for sign, left, right, result in problem.data["steps"]:
            assert {left, right} <= known, problem
            assert compute[sign](left, right) == result, problem
            assert 0 < result < 1000
            known.add(result)
        assert str(problem.data["steps"][-1][3]) == problem.reference


def test_every_number_but_the_distractor_is_used() -> None:
    for problem in everything():
        used = {number for _, left, right, _ in problem.data["steps"] for number in (left, right)}
        assert numbers_in(problem.question) - used <= {problem.data["distractor"]}, problem


def test_no_step_is_a_product_of_two_longer_numbers() -> None:
    steps = [step for problem in everything() for step in problem.data["steps"]]
    assert all(min(left, right) < 10 for sign, left, right, _ in steps if sign == "×")
    assert all(min(right, result) < 10 for sign, _, right, result in steps if sign == "÷")


@pytest.mark.parametrize(("language", "longest"), [("en", 135), ("zh", 60)])
def test_stories_are_short_and_in_their_language(language: Language, longest: int) -> None:
    problems = [problem for problem in everything() if problem.language == language]
    assert len(problems) > 500
    assert max(len(problem.question) for problem in problems) <= longest
    assert all(problem.question.isascii() == (language == "en") for problem in problems)
    assert not any("{" in problem.question or "{" in problem.data["unit"] for problem in problems)


def test_dials_are_obeyed() -> None:
    config = WordProblemsConfig(
        kind="word_problems", languages=("zh",), steps=(2,), num_problems=50, num_eval_problems=5
    )
    for problem in WordProblems(config).problems("train"):
        assert problem.language == "zh"
        assert len(problem.data["steps"]) == 2


def test_families_cover_all_operations_and_lengths() -> None:
    assert len(FAMILIES) >= 12
    assert {step[0] for family in FAMILIES for step in family.steps} == set("+-×÷")
    assert {len(family.steps) for family in FAMILIES} == {1, 2, 3}
