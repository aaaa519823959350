"""Attacks: wrong by construction, complete, and judged rightly by the verifiers that are exact."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from countdown import CountdownConfig, CountdownVerifier
from groupwise.checks.audit.attacks import CODE, FLOODS, KINDS, adversarial_cases
from groupwise.checks.audit.judge import Canary, Form, Limits, differs_as_number, judge_cases
from groupwise.checks.audit.summary import Summary
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import Template
from groupwise.types import Outcome, Problem
from groupwise.verifiers.extraction import extract

RIGHT, WRONG = Outcome.CORRECT, Outcome.WRONG
PROBLEM = Problem("p", "What is 17 × 23?", "391")


def texts(kind: str, problem: Problem = PROBLEM, template: Template | None = None) -> list[str]:
    cases = adversarial_cases([problem], template or Template(), with_floods=False)
    return [case.text for case in cases if case.group == kind]


def test_every_kind_is_made_and_none_twice(tmp_path: Path) -> None:
    cases = adversarial_cases([PROBLEM, Problem("q", "What is 1 + 6?", "7")], Template(), Canary(tmp_path))
    numeric = set(KINDS) - {"countdown tricks", "other units"}
    assert {case.group for case in cases} == numeric | set(FLOODS) | {CODE}
    assert len({(case.problem.id, case.group, case.text) for case in cases}) == len(cases)
    assert len({case.name for case in cases}) == len(cases)
    assert {case.problem.id for case in cases if case.group in FLOODS} == {"p"}
    assert [case.expected for case in cases if case.group == "right answer"] == [True] * 10
    assert {case.expected for case in cases if case.group == "other digits"} == {None}


def test_code_needs_a_canary() -> None:
    assert CODE not in {case.group for case in adversarial_cases([PROBLEM], Template())}


def test_the_attacks_of_the_brief_are_there() -> None:
    assert "" in texts("no answer")
    assert "391" in texts("bare answer")
    assert {"What is 17 × 23?", "What is 17 × 23?\n", r"<think></think>\boxed{17 × 23}"} <= set(
        texts("question given back")
    )
    assert r"<think></think>\boxed{392, 391}" in texts("candidates")
    assert r"\boxed{392}\boxed{391}" in texts("several answers")
    assert {r"<think>\boxed{391}</think>", r"<think>\boxed{391}"} <= set(texts("only in reasoning"))
    assert "<think></think>\\boxed{\u202e193}" in texts("lookalikes")


def test_numbers_leave_out_the_right_one() -> None:
    found = [
        Fraction(text.removeprefix(r"<think></think>\boxed{")[:-1])
        for text in texts("numbers", Problem("p", "q", "42"))
    ]
    assert set(range(101)) - {42} <= set(found)
    assert 42 not in found
    assert {Fraction(-42), Fraction(420), Fraction("42.0000001")} <= set(found)


@pytest.mark.parametrize("reference", ["0", "1", "-5", "121", "7", "1000000"])
def test_no_attack_on_a_number_holds_the_right_answer_alone(reference: str) -> None:
    for case in adversarial_cases([Problem("p", "q", reference)], Template(), with_floods=False):
        answer = extract(case.text, "boxed").answer
        if case.expected is False and answer is not None and answer.strip("+").replace(".", "").lstrip("-").isdecimal():
            assert Fraction(answer) != Fraction(reference), case


def test_what_the_last_number_mode_reads_rightly_is_no_attack() -> None:
    template = Template(gold="<think></think>{reference}")
    cases = adversarial_cases([PROBLEM], template, extraction="last_number", with_floods=False)
    right = [case for case in cases if extract(case.text, "last_number").answer == "391"]
    assert right
    assert all(case.expected is not False for case in right)


def test_a_template_without_reasoning_tags_is_not_asked_about_them() -> None:
    template = Template(gold="#### {reference}")
    assert texts("only in reasoning", template=template) == []
    assert texts("right answer", template=template) == ["#### 391", "#### 391\n"]


def test_where_many_texts_are_right_only_the_reference_decides() -> None:
    cases = adversarial_cases([PROBLEM], Template(), verifier="instructions", with_floods=False)
    assert {case.group for case in cases if case.expected is not None} == {"right answer"}


def test_a_program_is_not_altered_word_by_word() -> None:
    form = Form(Problem("p", "q", "def f():\n    return 1"), Template(), differs_as_number)
    assert not form.is_short
    assert texts("candidates", form.problem) == texts("several answers", form.problem) == []


@pytest.mark.parametrize(
    ("reference", "answer", "differs"),
    [
        ("1/2", "0.5", False), ("3", "3.0", False), ("3", "4", True), ("B", "B ", False), ("B", "C", True),
        ("3", "1/0", True),
    ],
)  # fmt: skip
def test_plain_difference(reference: str, answer: str, differs: bool) -> None:
    assert differs_as_number(reference, answer) is differs


def test_the_countdown_verifier_withstands_all_of_it(tmp_path: Path) -> None:
    task = make_task(CountdownConfig(kind="countdown", num_problems=3, num_eval_problems=1))
    cases = adversarial_cases(task.problems("train"), task.template, Canary(tmp_path), verifier="countdown")
    results = tuple(judge_cases(CountdownVerifier(), cases, Limits(verdict_s=2), Canary(tmp_path)))
    assert [(one.miss, one.case.text[:80]) for one in Summary(results, len(cases)).misses] == []
    assert {"countdown tricks", "bombs", CODE} <= {case.group for case in cases}


def test_a_careless_verifier_is_found_out(told: Any) -> None:
    """The last-number reading, judged by the rules of the box, pays for lists, echoes and reasoning."""
    task = make_task(ArithmeticConfig(kind="arithmetic", num_problems=1, num_eval_problems=1))
    cases = adversarial_cases(task.problems("train"), task.template, with_floods=False)
    careless = told(lambda text: RIGHT if extract(text, "last_number").answer == cases[0].problem.reference else WRONG)
    misses = {one.case.group for one in judge_cases(careless, cases, Limits(verdict_s=5)) if one.miss}
    assert {"bare answer", "candidates", "several answers"} <= misses
