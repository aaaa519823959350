"""reasoning-gym's generators: splits apart by the question, scores by the generator, faults by name."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.tasks import make_task
from groupwise.types import SPLITS, Outcome
from groupwise.verifiers import make_verifier
from gym_problems import ReasoningGym

pytest.importorskip("reasoning_gym")
SMALL = {"kind": "reasoning_gym", "num_problems": 30, "num_eval_problems": 4}


def test_splits_have_different_questions_and_references_pass() -> None:
    task = make_task({**SMALL, "datasets": ["leg_counting", "spell_backward"]})
    assert isinstance(task, ReasoningGym)
    questions = {split: {problem.question for problem in task.problems(split)} for split in SPLITS}
    assert [len(questions[split]) for split in SPLITS] == [30, 4, 4]
    assert not questions["train"] & questions["dev"] | questions["train"] & questions["test"]
    problems = task.problems("train")
    assert {problem.difficulty for problem in problems} == {"leg_counting", "spell_backward"}
    with make_verifier({"kind": "reasoning_gym", "timeout_s": 60}) as verifier:
        verifier.check(problems, task.template)
        task.validate(verifier.verify)
        wrong = verifier.verify(problems[0], "<answer>-1</answer>")
        assert (wrong.outcome, wrong.reward) == (Outcome.WRONG, 0.0)
        assert verifier.verify(problems[0], "no tags").outcome is Outcome.UNPARSABLE


def test_dials_reach_the_generator() -> None:
    dials = {"min_animals": 3, "max_animals": 3}
    task = make_task({**SMALL, "datasets": ["leg_counting"], "settings": {"leg_counting": dials}})
    assert all(problem.question.count(",") == 3 for problem in task.problems("train"))  # two of them between animals


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"datasets": ["leg_count"]}, "reasoning-gym cannot make 'leg_count'"),
        ({"datasets": ["leg_counting"], "settings": {"leg_counting": {"legs": 3}}}, "cannot make .*legs"),
        ({"datasets": ["leg_counting"], "settings": {"other": {}}}, "task.settings.other: not one of"),
    ],
)
def test_faults_are_named(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_task({**SMALL, **changes}).problems("train")


SHOWN = f"""
from groupwise.tasks import make_task
settings = {SMALL} | {{"datasets": ["isomorphic_strings", "list_functions", "polynomial_multiplication"]}}
print([problem.question for problem in make_task(settings).problems("train")])
"""


def test_all_processes_have_the_same_problems() -> None:
    command, worlds = [sys.executable, "-c", SHOWN], [{**os.environ, "PYTHONHASHSEED": seed} for seed in "12"]
    first, second = (subprocess.check_output(command, env=world) for world in worlds)
    assert first == second


def test_a_question_is_judged_by_its_own_problem() -> None:
    task = make_task({**SMALL, "datasets": ["list_functions", "polynomial_multiplication"]})
    problem = task.problems("train")[0]
    with make_verifier({"kind": "reasoning_gym", "timeout_s": 60}) as verifier:
        task.validate(verifier.verify)
        other = verifier.verify(replace(problem, question="Another?"), task.template.gold_answer(problem))
    assert (other.outcome, "makes another problem" in other.evidence) == (Outcome.CRASHED, True)


@pytest.mark.parametrize("dataset", ["string_insertion", "polynomial_multiplication"])
def test_no_answer_is_run(tmp_path: Path, dataset: str) -> None:
    task = make_task({**SMALL, "datasets": [dataset]})
    problem, trace = task.problems("train")[0], tmp_path / "trace"
    forged = "__import__('sys').modules['reasoning_gym'].__dict__.update(create_dataset=1)"
    attacks = [f"open({str(trace)!r}, 'w').write('x')", f"[{forged}]", f"(lambda: open({str(trace)!r}, 'w'))()",
               f"exec({'+'.join(f'chr({ord(c)})' for c in f'open({str(trace)!r}, chr(119))')})"]  # fmt: skip
    with make_verifier({"kind": "reasoning_gym", "timeout_s": 60}) as verifier:
        for attack in attacks:
            assert verifier.verify(problem, f"<answer>{attack}</answer>").outcome is Outcome.WRONG
        task.validate(verifier.verify)  # judged as ever
    assert not trace.exists()
