"""A reward of the user's own: arguments by name, values, faults and processes; nothing that it does is a zero."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from groupwise.config.places import Place
from groupwise.errors import ConfigError, InvariantError
from groupwise.tasks.base import Template
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, StepReward
from groupwise.verifiers import Verifier, make_verifier, score, spot_check
from groupwise.verifiers.python import PythonVerifier, adopt

SOURCE = """
import os, sys, time
from decimal import Decimal
from helper import HALF
from groupwise.types import Outcome, StepReward, Verdict

print("hello from an import")
calls = []

def reward(completion, reference, **fields):
    print("and from the function")
    if completion == "sleep": time.sleep(60)
    if completion == "die": os._exit(3)
    if completion == "leave": sys.exit(4)
    if completion == "raise": raise KeyError("no box")
    if completion == "list": return [1.0, 0.0]
    if completion == "text": return "0.5"
    if completion == "none": return None
    if completion == "half a character": print("\\ud800"); return 0.5
    if completion == "lines": raise RuntimeError("one\\ntwo")
    if completion == "nan": return float("nan")
    if completion == "half": return HALF
    if completion == "decimal": return Decimal("0.75")
    if completion == "parts": return {"form": 0.25, "answer": 1}
    if completion == "too many": return {f"part{i}": 0.0 for i in range(33)}
    if completion == "odd part": return {"cap": 1.0}
    if completion == "inf part": return {"form": 1.0, "answer": float("inf")}
    if completion == "verdict":
        return Verdict(Outcome.UNPARSABLE, {"form": 0.5}, "no box", "7", {"words": 3.0}, (StepReward(2, 0.5),))
    if completion == "random": calls.append(0); return len(calls)
    if completion == "fork":
        for _ in range(3): os.fork()
        return 1.0
    if completion == "orphan":
        child = os.fork()
        if child == 0: time.sleep(300)
        open(os.path.join(os.path.dirname(__file__), "orphan"), "w").write(str(child))
        os._exit(0)
    return completion == reference

def prompted(prompt, completion, id, terms, missing="default"): return {"prompt": prompt == "Q: What is 1 + 2?\\n",
    "id": id == "p", "terms": sum(terms), "missing": missing == "default"}
def misspelt(completion, referense): return 1.0
def by_position(completion, /): return 1.0
def maker(size=3): return lambda completion: 1.0
def shouted(completion, reference, question): return float(completion.isupper())

class Rule:
    def __call__(self, completion): return 1.0
class NoRule:
    pass
"""
PROBLEM = Problem("p", "What is 1 + 2?", "3", data={"terms": [1, 2]})
TEMPLATE = Template(prompt="Q: {question}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "mine.py").write_text(SOURCE)
    (folder / "helper.py").write_text("HALF = 0.5\n")
    (folder / "broken.py").write_text("def reward(:\n")
    (folder / "leaves.py").write_text("import sys\ndef reward(completion): return 1.0\nsys.exit(2)\n")
    return folder


def verifier(folder: Path, place: str, template: Template = TEMPLATE, **dials: object) -> Verifier:
    made = make_verifier({"kind": f"{folder}/{place}", "timeout_s": 2.0, **dials})
    made.check([PROBLEM], template)
    return made


@pytest.fixture(scope="module")
def function(folder: Path) -> Iterator[Verifier]:
    with verifier(folder, "mine.py:reward") as function:
        yield function


@pytest.mark.parametrize(
    ("completion", "outcome", "parts"),
    [
        ("3", Outcome.CORRECT, {"reward": 1.0}), ("4", Outcome.WRONG, {"reward": 0.0}),
        ("half", Outcome.WRONG, {"reward": 0.5}), ("decimal", Outcome.CORRECT, {"reward": 0.75}),
        ("half a character", Outcome.WRONG, {"reward": 0.5}),
        ("parts", Outcome.CORRECT, {"form": 0.25, "answer": 1.0}), ("none", Outcome.NONE, {}),
        ("\ud800\x00", Outcome.WRONG, {"reward": 0.0}), ("fork", Outcome.CORRECT, {"reward": 1.0}),
    ],
)  # fmt: skip
def test_values_become_parts(function: Verifier, completion: str, outcome: Outcome, parts: dict[str, float]) -> None:
    verdict = function.verify(PROBLEM, completion)
    assert (verdict.outcome, verdict.parts) == (outcome, parts), verdict.evidence
    assert verdict.reward == (sum(parts.values()) if parts else None)
    assert function.verify(PROBLEM, "3").reward == 1.0  # the next one is judged whatever the last one did


@pytest.mark.parametrize(
    ("completion", "evidence"),
    [
        ("raise", r"mine.py:reward raised KeyError: 'no box' \(mine.py, line 15\) for the completion 'raise'"),
        ("lines", r"raised RuntimeError: one two \(mine.py, line "),
        ("list", r"returned \[1.0, 0.0\] \(a list\) for the completion 'list'; a finite number, a dict"),
        ("text", r"returned '0.5' \(a str\) for"), ("nan", r"returned nan \(a float\)"),
        ("inf part", r"returned {'form': 1.0, 'answer': inf} \(a dict\)"),
        ("too many", r"returned a dict of 33 parts \(1 to 32 are allowed\)"),
        ("odd part", r"returned a part named 'cap'"),
        ("die", "mine.py:reward for the completion 'die': the worker ended with exit status 3"),
        ("leave", r"called exit\(4\) for the completion 'leave'"),
    ],
)  # fmt: skip
def test_faults_are_named_with_the_completion_and_are_no_zero(
    function: Verifier, completion: str, evidence: str
) -> None:
    verdict = function.verify(PROBLEM, completion)
    assert (verdict.outcome, verdict.reward) == (Outcome.CRASHED, None)
    assert re.search(evidence, verdict.evidence), verdict.evidence
    assert function.verify(PROBLEM, "3").reward == 1.0


def test_a_verdict_comes_back_whole(function: Verifier) -> None:
    verdict = function.verify(PROBLEM, "verdict")
    assert (verdict.outcome, verdict.parts, verdict.evidence) == (Outcome.UNPARSABLE, {"form": 0.5}, "no box")
    assert (verdict.answer, verdict.measures, verdict.steps) == ("7", {"words": 3.0}, (StepReward(2, 0.5),))


def test_a_hang_is_killed_in_time(function: Verifier) -> None:
    began = time.monotonic()
    verdict = function.verify(PROBLEM, "sleep")
    assert (verdict.outcome, verdict.reward) == (Outcome.TIMEOUT, None)
    assert "mine.py:reward for the completion 'sleep': no result after 2 s" in verdict.evidence
    assert time.monotonic() - began < 20
    assert function.verify(PROBLEM, "3").outcome is Outcome.CORRECT


def test_what_it_forked_ends_with_it(function: Verifier, folder: Path) -> None:
    assert function.verify(PROBLEM, "orphan").outcome in (Outcome.TIMEOUT, Outcome.CRASHED)
    assert function.verify(PROBLEM, "3").reward == 1.0
    state = Path("/proc") / (folder / "orphan").read_text() / "stat"
    end = time.monotonic() + 10  # it was killed, but dies when the kernel next runs it
    with suppress(FileNotFoundError, ProcessLookupError):
        while state.read_text().split()[2] not in "ZX":  # dead, and perhaps not yet buried
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_field_of_the_data_never_takes_the_place_of_the_reference_answer(folder: Path) -> None:
    data = {"reference": "page 3", "completion": "page 4"}
    with verifier(folder, "mine.py:reward") as function:
        assert function.verify(Problem("p", "What is 1 + 2?", "3", data=data), "3").reward == 1
        assert function.verify(Problem("p", "Where?", "", data=data), "page 3").reward == 1


def test_arguments_are_given_by_name(folder: Path) -> None:
    with verifier(folder, "mine.py:prompted") as function:
        assert function.verify(PROBLEM, "x").parts == {"prompt": 1.0, "id": 1.0, "terms": 3.0, "missing": 1.0}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "mine.py:misspelt",
            r"needs the argument 'referense', which is not a field of problem p \(did you mean 'reference'",
        ),
        ("mine.py:misspelt", r"has completion, reference, question, prompt, id, difficulty, language, terms"),
        ("mine.py:by_position", "its argument 'completion' can only be given by position"),
        ("mine.py:maker", r"takes no argument that is given here \(completion, .*reward = maker\(\.\.\.\)"),
        ("mine.py:rewards", "has no 'rewards'; did you mean 'reward'"),
        ("mine.py:HALF", "mine.py:HALF is not a verifier"), ("mine.py:NoRule", "mine.py:NoRule is not a verifier"),
        ("broken.py:reward", "broken.py is not readable Python"),
        ("leaves.py:reward", "leaves.py cannot be imported: SystemExit: 2"),
        ("none.py:reward", "there is no file .*none.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_before_the_first_completion(folder: Path, place: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        verifier(folder, place)


def test_a_field_that_json_cannot_hold_is_named(folder: Path) -> None:
    with verifier(folder, "mine.py:prompted") as function, pytest.raises(ConfigError, match="'terms' of problem p"):
        function.check([Problem("p", "q", "1", data={"terms": {1, 2}})], TEMPLATE)


def test_an_object_that_is_called(folder: Path) -> None:
    with verifier(folder, "mine.py:Rule") as rule:
        assert rule.verify(PROBLEM, "x").reward == 1.0


def test_a_module_is_named_as_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    place = Place.importable("mine:shouted")
    with adopt(place)() as function:
        assert (function.name, function.verify(PROBLEM, "YES").reward) == ("mine:shouted", 1.0)
    with pytest.raises(ConfigError, match="there is no module 'no_such_module'"):
        Place.importable("no_such_module:reward")


def test_the_sources_are_the_file_and_its_neighbours(folder: Path) -> None:
    with verifier(folder, "mine.py:reward") as function:
        assert isinstance(function, PythonVerifier)
        assert function.sources() == (folder / "mine.py", folder / "helper.py")


def group(*texts: str) -> Group:
    zero = np.zeros(1, dtype=np.float32)
    completions = [
        Completion(i, np.zeros(1, np.int64), zero, zero, FinishReason.STOP, text) for i, text in enumerate(texts)
    ]
    return Group(Prompt(PROBLEM, "q", (1,)), tuple(completions), 0, 0)


@pytest.mark.parametrize("repeatable", [True, False])
def test_one_that_does_not_repeat_itself_is_named(folder: Path, repeatable: bool) -> None:
    with verifier(folder, "mine.py:reward", repeatable=repeatable) as function:
        scored = score([group("random", "random")], function)
        if not repeatable:
            return spot_check(scored, function, None, 0)
        with pytest.raises(InvariantError, match=r"mine\.py:reward does not repeat itself"):
            spot_check(scored, function, None, 0)
    return None


def test_its_parts_stand_beside_those_of_the_recipe(folder: Path) -> None:
    parts = {"loops": {"kind": "repetition", "weight": 1.0}, "form": {"kind": "format", "weight": 1.0}}
    with verifier(folder, "mine.py:reward", parts=parts) as composed:
        assert composed.verify(PROBLEM, "3").parts == {"reward": 1.0, "loops": 0.0, "form": 0.0}
        twice = composed.verify(PROBLEM, "parts")
        assert composed.verify(PROBLEM, "none").outcome is Outcome.NONE
    assert twice.outcome is Outcome.CRASHED
    assert "pays a part 'form', which is one of verifier.parts too" in twice.evidence


def test_it_gives_a_second_opinion_and_none_is_none(folder: Path) -> None:
    part = {"kind": f"{folder}/mine.py:reward", "weight": 2.0}
    config = {"kind": "math", "parts": {"mine": part}}
    with make_verifier(config) as composed:
        composed.check([PROBLEM], TEMPLATE)
        assert composed.verify(PROBLEM, "3").parts["mine"] == 2.0
        assert "mine" not in composed.verify(PROBLEM, "none").parts
        assert composed.verify(PROBLEM, "raise").outcome is Outcome.CRASHED


def test_what_it_pays_is_its_own_affair(folder: Path) -> None:
    with pytest.raises(
        ValueError, match=r"verifier\.correct_reward = 2.0 has no effect here: .*mine.py:reward says itself"
    ):
        verifier(folder, "mine.py:reward", correct_reward=2.0)


@pytest.mark.parametrize(("above", "outcome"), [(0.7, Outcome.CORRECT), (0.75, Outcome.WRONG)])
def test_a_reward_above_the_bound_is_correct(folder: Path, above: float, outcome: Outcome) -> None:
    with verifier(folder, "mine.py:reward", correct_above=above) as function:
        assert function.verify(PROBLEM, "decimal").outcome is outcome
