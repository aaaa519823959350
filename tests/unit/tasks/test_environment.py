"""Environments of `verifiers`: rows become problems, the rubric scores, and what cannot be represented is refused."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import ConfigError
from groupwise.tasks import make_task
from groupwise.types import Outcome
from groupwise.verifiers import make_verifier

INSTALLED = importlib.util.find_spec("verifiers") is not None and importlib.util.find_spec("datasets") is not None
ENVIRONMENT = """
import os, time
import verifiers as vf

SHOT = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]

def exact(completion, answer, parser):
    said = parser.parse_answer(completion)
    return {"nan": float("nan"), "text": "0.5"}.get(said, said == answer)

async def short(completion, info, state):
    said = completion[0]["content"]
    if said == "raise": raise KeyError("missing")
    if said == "exit": raise SystemExit(3)
    if said == "die": os._exit(3)
    if said == "hang": time.sleep(60)
    return len(said) <= info["limit"]

def length(completion): return len(completion[0]["content"])
def ranked(completions): return [0.0] * len(completions)
def asks(completion, judge): return 1.0
def rows(count, offset=0):
    which = range(offset, offset + count)
    found = [{"question": f"{i}+{i}?", "answer": str(2 * i), "info": {"limit": 2}} for i in which]
    DATASET
    return found

def load_environment(funcs=(exact, short, length), weights=(1.0, 0.25, 0.0), kind=vf.SingleTurnEnv, **more):
    rubric = vf.Rubric(funcs=list(funcs), weights=list(weights))
    more = {"dataset": rows(40), "eval_dataset": rows(3, 100), "system_prompt": "Add.", "few_shot": SHOT, **more}
    return kind(rubric=rubric, **more)

class Turns(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs): return []

def turns(): return load_environment(kind=Turns)
def group(): return load_environment([ranked], [1.0])
def judged(): return load_environment([asks], [1.0])
def unnamed(): return load_environment([lambda completion: 1.0], [1.0])
def idle(): return load_environment([length], [0.0])
def broken(): raise OSError("no such data")
def pictures():
    part = {"type": "image_url", "image_url": {"url": "data:,"}, "text": None}
    found = [{"prompt": [{"role": "user", "content": [part]}], "answer": ""}]
    DATASET
    return load_environment(dataset=found, system_prompt=None, few_shot=None)
def alone(): return load_environment(eval_dataset=None)
def changing():
    import random
    return load_environment(dataset=rows(40, random.randrange(10**9)))
"""


@pytest.fixture(scope="module", params=["stand-in", "installed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with `tiny_env.py`, importable by name, and with the stand-in where that is meant."""
    folder = tmp_path_factory.mktemp("environments")
    make = "import datasets; found = datasets.Dataset.from_list(found)"
    if request.param == "installed" and not INSTALLED:
        pytest.skip("the library verifiers is not installed")
    if request.param == "stand-in":
        make = "pass"
        stand_in = Path(__file__).with_name("environment_library.py")
        (folder / "verifiers.py").write_text(stand_in.read_text())
    (folder / "tiny_env.py").write_text(ENVIRONMENT.replace("DATASET", make))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield folder


def _task(folder: Path, function: str = "load_environment", **changes: Any) -> Any:
    return make_task({"kind": "verifiers", "environment": f"{folder}/tiny_env.py:{function}", **changes})


def test_rows_are_problems_and_the_rubric_scores(folder: Path) -> None:
    task = _task(folder)
    problems = task.problems("train")
    assert len(problems) + len(task.problems("dev")) == 40
    assert [problem.id for problem in task.problems("test")] == [f"tiny_env/test-{i}" for i in range(3)]
    problem = task.problems("test")[1]
    assert task.template.render(problem) == "Add.\nUser: 1+1?\nAssistant: 2\nUser: 101+101?\nAssistant:"
    assert task.template.messages(problem) == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "101+101?"},
    ]
    assert (problem.reference, problem.data["info"]) == ("202", {"limit": 2})
    with make_verifier({"kind": "verifiers"}) as verifier:
        verifier.check(problems, task.template)
        right, wrong, faulty = (verifier.verify(problem, text) for text in ("202", "7", "raise"))
        assert (right.outcome, right.parts) == (Outcome.CORRECT, {"exact": 1.0, "short": 0.0})
        assert (wrong.outcome, wrong.parts) == (Outcome.WRONG, {"exact": 0.0, "short": 0.25})
        assert right.measures["length"] == 3.0
        assert (faulty.outcome, faulty.reward) == (Outcome.CRASHED, None)
        assert "short raised KeyError: 'missing'" in faulty.evidence
        for text, sentence in (("nan", "exact returned nan"), ("text", "exact returned '0.5'"), ("exit", "SystemExit")):
            verdict = verifier.verify(problem, text)
            assert verdict.outcome is Outcome.CRASHED
            assert sentence in verdict.evidence
        assert verifier.verify(problem, "die").outcome is Outcome.CRASHED
        assert verifier.verify(problem, "202").outcome is Outcome.CORRECT  # a new process loads the environment again


def test_a_hanging_reward_function_is_a_timeout(folder: Path) -> None:
    problem = _task(folder).problems("test")[0]
    with make_verifier({"kind": "verifiers", "timeout_s": 1}) as verifier:
        assert verifier.verify(problem, "hang").outcome is Outcome.TIMEOUT


def test_an_environment_by_name_with_arguments(folder: Path) -> None:
    task = make_task({"kind": "verifiers", "environment": "tiny-env", "arguments": {"system_prompt": "Sum."}})
    assert task.problems("train")[0].question.startswith("Sum.\nUser: 1+1?")
    assert {problem.id.split("-")[0] for problem in task.problems("train")} == {"tiny"}


def test_without_rows_to_evaluate_a_share_is_for_tests(folder: Path) -> None:
    task = _task(folder, "alone", test_fraction=0.25)
    assert sum(len(task.problems(split)) for split in ("train", "dev", "test")) == 40
    assert 4 <= len(task.problems("test")) <= 16  # 10 of 40 at a quarter


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("turns", "is a Turns; only a SingleTurnEnv is allowed"),
        ("group", "'ranked', which compares completions"),
        ("judged", "'asks', which asks a judge model"),
        ("unnamed", "'<lambda>', which cannot name a part"),
        ("idle", "has no reward function with a weight"),
        ("broken", "cannot be loaded: OSError: no such data"),
        ("pictures", "row 0 of the environment's train data has a message with content of the type 'image_url'"),
        ("absent", "has no 'absent'"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(folder: Path, function: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        _task(folder, function).problems("train")


def test_rows_that_change_are_no_verdict(folder: Path) -> None:
    problem = _task(folder, "changing").problems("train")[0]
    with make_verifier({"kind": "verifiers"}) as verifier:
        verdict = verifier.verify(problem, "7")
    assert verdict.outcome is Outcome.CRASHED
    assert "has other rows each time it is loaded" in verdict.evidence


@pytest.mark.skipif(INSTALLED, reason="the library is installed")
def test_the_missing_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("def load_environment(): ...\n")
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[verifiers\]'"):
        make_task({"kind": "verifiers", "environment": f"{tmp_path}/some.py:load_environment"}).problems("train")
