"""What holds of every task that generates its problems."""

from functools import cache
from itertools import islice

import pytest

from groupwise.config import parse
from groupwise.errors import ConfigError
from groupwise.tasks import TASKS, make_task
from groupwise.tasks.base import GeneratedTask
from groupwise.types import SPLITS, Outcome
from groupwise.verifiers import make_verifier

HARD: dict[str, dict[str, object]] = {
    "knights_knaves": {"min_people": 6, "max_people": 8, "max_depth": 2},
    "json_extraction": {"num_extra_facts": 4},
    "instructions": {"max_rules": 6},
    "arithmetic": {"kinds": ["product", "difference", "chain"], "digits": [2, 3]},
}
CASES = [(name, is_hard) for name, dials in HARD.items() for is_hard in (False, True)[: 1 + bool(dials)]]
TOTAL = 48


def fresh(name: str, is_hard: bool) -> GeneratedTask:
    sizes = {"num_problems": 40, "num_eval_problems": 4}
    task = make_task({"kind": name} | sizes | (HARD[name] if is_hard else {}))
    assert isinstance(task, GeneratedTask)
    return task


kept = cache(fresh)


@pytest.mark.parametrize(("name", "is_hard"), CASES)
def test_splits_are_disjoint(name: str, is_hard: bool) -> None:
    task = kept(name, is_hard)
    problems = {problem.id: split for split in SPLITS for problem in task.problems(split)}
    questions = {problem.question for split in SPLITS for problem in task.problems(split)}
    assert len(problems) == len(questions) == TOTAL
    splits_of: dict[str, set[str]] = {}
    candidates = task.candidates()
    while problems:
        content, problem = next(candidates)
        if problem.id in problems:
            splits_of.setdefault(content, set()).add(problems.pop(problem.id))
    assert all(len(splits) == 1 for splits in splits_of.values())


@pytest.mark.parametrize(("name", "is_hard"), CASES)
def test_candidates_repeat(name: str, is_hard: bool) -> None:
    assert list(islice(fresh(name, is_hard).candidates(), 20)) == list(islice(kept(name, is_hard).candidates(), 20))


@pytest.mark.parametrize(("name", "is_hard"), CASES)
def test_every_reference_answer_passes_and_another_problems_does_not(name: str, is_hard: bool) -> None:
    task = kept(name, is_hard)
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
    ("name", "dials", "message"),
    [
        ("knights_knaves", {"max_depth": 0}, "max_depth = 0"),
        ("knights_knaves", {"operators": ["not"]}, "fits a solution and its opposite"),
        ("instructions", {"max_rules": 1}, "max_rules = 1"),
        ("propositional_proofs", {"max_lines": 2}, "max_lines = 2"),
        ("countdown", {"min_numbers": 5}, "min_numbers = 5 is above max_numbers = 4"),
        ("knights_knaves", {"min_people": 5}, "min_people = 5 is above"),
    ],
)
def test_contradictory_dials_are_refused(name: str, dials: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(TASKS.settings(name), {"kind": name, **dials})
