"""A reward function of the user's own: paid, refused, failing, hanging, executed; never a crash of the audit."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.audit.reward_function import RewardFunction, is_place
from groupwise.errors import VerifierError
from groupwise.types import Outcome, Problem
from groupwise.verifiers.base import WorkersConfig

SOURCE = """
import os, sys, time
from helper import HALF
print("hello from an import")

def reward(prompt, completion, reference):
    print("and from the function")
    if completion == "sleep": time.sleep(60)
    if completion == "die": os._exit(3)
    if completion == "raise": raise KeyError("no box")
    if completion == "leave": sys.exit(0)
    if completion == "list": return [1.0]
    if completion == "none": return None
    if completion == "nan": return float("nan")
    if completion == "half": return HALF
    if completion == "prompt": return 1.0 if prompt == "What is 1 + 2?\\n" else 0.0
    return completion == reference
"""
PROBLEM = Problem("p", "What is 1 + 2?", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "mine.py").write_text(SOURCE)
    (folder / "helper.py").write_text("HALF = 0.5\n")
    (folder / "broken.py").write_text("def reward(:\n")
    return folder


@pytest.fixture(scope="module")
def function(folder: Path) -> Iterator[RewardFunction]:
    with RewardFunction(f"{folder}/mine.py:reward", WorkersConfig(kind="x", timeout_s=2.0)) as function:
        yield function


@pytest.mark.parametrize(
    ("completion", "outcome", "evidence"),
    [
        ("3", Outcome.CORRECT, "the function returned 1"),
        ("4", Outcome.WRONG, "the function returned 0"),
        ("half", Outcome.WRONG, "the function returned 0.5"),
        ("prompt", Outcome.CORRECT, "returned 1"),
        ("\ud800\x00", Outcome.WRONG, "returned 0"),
        ("raise", Outcome.CRASHED, "KeyError: 'no box'"),
        ("list", Outcome.CRASHED, r"it returned \[1.0\]; a finite number was expected"),
        ("none", Outcome.CRASHED, "it returned None"),
        ("nan", Outcome.CRASHED, "it returned nan"),
        ("die", Outcome.CRASHED, "exit status 3"),
        ("leave", Outcome.CRASHED, "exit status|closed its pipe"),  # a slow machine has not buried it yet
    ],
)
def test_verdicts(function: RewardFunction, completion: str, outcome: Outcome, evidence: str) -> None:
    verdict = function.verify(PROBLEM, completion)
    assert verdict.outcome is outcome
    assert re.search(evidence, verdict.evidence)
    assert function.verify(PROBLEM, "3").reward == 1.0  # the next one is judged whatever the last one did


def test_a_hang_is_killed_in_time(function: RewardFunction) -> None:
    began = time.monotonic()
    verdict = function.verify(PROBLEM, "sleep")
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.reward is None
    assert time.monotonic() - began < 20
    assert function.verify(PROBLEM, "3").outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py:rewards", "no function 'rewards' in it; there are reward"),
        ("mine.py:HALF", "no function 'HALF'"),
        ("broken.py:reward", "broken.py:reward cannot be used: SyntaxError"),
        ("none.py:reward", "FileNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_named(folder: Path, place: str, message: str) -> None:
    with pytest.raises(VerifierError, match=message):
        RewardFunction(f"{folder}/{place}")


def test_places_are_told_from_names() -> None:
    assert is_place("a/b.py:reward")
    assert not is_place("math")
