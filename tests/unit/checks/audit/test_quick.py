"""The audit before training: quick, silent on sound verifiers, and it names what was paid."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countdown import CountdownConfig
from groupwise.checks.audit.verifier import quick_audit
from groupwise.errors import VerifierError
from groupwise.tasks import make_task
from groupwise.tasks.arithmetic import ArithmeticConfig
from groupwise.tasks.base import Task
from groupwise.tasks.jsonl import JsonlConfig
from groupwise.types import Outcome
from groupwise.verifiers import make_verifier
from groupwise.verifiers.extraction import extract

SMALL = {"num_problems": 4, "num_eval_problems": 1}


@pytest.fixture
def arithmetic() -> Task:
    return make_task(ArithmeticConfig(kind="arithmetic", **SMALL))


def rule(accept: Callable[[str, set[str]], bool], task: Task) -> Callable[[str], Outcome]:
    references = {problem.reference for problem in task.problems("train")}
    return lambda text: Outcome.CORRECT if accept(text, references) else Outcome.WRONG


def test_a_sound_verifier_passes_in_time() -> None:
    task = make_task(CountdownConfig(kind="countdown", **SMALL))
    began = time.process_time()
    quick_audit(task, make_verifier("countdown"))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        (lambda text, right: extract(text, "last_number").answer in right, "pays for 'bare answer' on arithmetic/"),
        (lambda text, right: "boxed" in text, r"pays for 'no answer'.*\\\\boxed\{\}"),
        (lambda text, right: any(f"boxed{{{r}}}" in text for r in right), "pays for 'several answers'"),
        (
            lambda text, right: len(text) < 500 and extract(text, "boxed").answer in right,
            "does not pay for 'right answer'",
        ),
    ],
)
def test_what_is_paid_wrongly_is_named(
    told: Any, arithmetic: Task, accept: Callable[[str, set[str]], bool], message: str
) -> None:
    with pytest.raises(VerifierError, match=message) as error:
        quick_audit(arithmetic, told(rule(accept, arithmetic)))
    assert "groupwise audit number --task arithmetic" in str(error.value)


def test_the_command_that_shows_all_reads_the_same_problems(told: Any, tmp_path: Path) -> None:
    path = tmp_path / "my data.jsonl"
    path.write_text('{"question": "What is 60 × 64?", "answer": "3840"}\n')
    task = make_task(JsonlConfig(kind="jsonl", path=str(path), dev_fraction=0))
    paid = rule(lambda text, right: extract(text, "boxed").answer in {*right, "60 × 64"}, task)
    with pytest.raises(VerifierError, match=r"pays for 'question given back'.*, or judge by 'number', which") as error:
        quick_audit(task, told(paid, "math"))
    path_and_share = f"--set 'task.path=\"{path}\"' --set task.dev_fraction=0.0`"
    assert str(error.value).endswith(f"`groupwise audit math --task jsonl {path_and_share}")


def test_costly_verifiers_are_skipped(told: Any, arithmetic: Task) -> None:
    def never(text: str) -> Outcome:
        raise AssertionError("a model would have been asked")

    quick_audit(arithmetic, told(never, "judge"))
