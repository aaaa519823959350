"""What preflight sees of an environment: each fault, planted, is found, and a sound game is silent."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groupwise.checks import Finding
from groupwise.checks.preflight.bench import Bench
from groupwise.checks.preflight.data import prompts
from groupwise.checks.preflight.judging import playing
from groupwise.config import parse
from groupwise.errors import ModelError
from groupwise.trainers.grpo import GrpoRecipe

OWN = """
import os
from groupwise.tasks.environments.base import Environment, Opening, Reply
from groupwise.types import Problem

class Sound(Environment):
    @classmethod
    def problems(cls, config):
        return iter([Problem(f"own/{i}", "say yes", "") for i in range(400)])
    def start(self, problem, seed):
        return Opening.of(problem.question)
    def step(self, turn):
        return Reply(reward=float(turn.text == "yes"), done=True)
    def best(self):
        return "yes"
    def options(self):
        return ["yes", "no"]

class Other(Sound):
    def start(self, problem, seed):
        return Opening.of(str(os.getpid()))

class Raises(Sound):
    def step(self, turn):
        return Reply(reward=float({"yes": 1, "no": 0}[turn.text]), done=True)

class Unpaid(Sound):
    def step(self, turn):
        return Reply(done=True)

class Believes(Sound):
    def step(self, turn):
        return Reply(reward=float("yes" in turn.text or "reward: 1" in turn.text), done=True)
"""


def bench_of(task: dict[str, Any]) -> Bench:
    task = {"kind": "episodes", "num_problems": 100, **task}
    return Bench(parse(GrpoRecipe, {"algorithm": "grpo", "run": {"directory": "x", "num_steps": 1}, "task": task}))


def played(task: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    with bench_of(task) as bench:
        return playing(bench)


def test_the_prompt_that_an_environment_begins_is_shown() -> None:
    with bench_of({"environment": {"kind": "guess"}}) as bench:
        assert prompts.run(bench).figures["prompt"] == "1¦ ¦t¦o¦ ¦3¦1¦\n"


def test_a_template_that_shows_no_tools_is_found_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = SimpleNamespace(chat_template="{{ messages }}")
    monkeypatch.setattr("groupwise.checks.preflight.judging.tokenizer_of", lambda path: tokenizer)
    database = {"template": {"chat": True}, "environment": {"kind": "database"}}
    with pytest.raises(ModelError, match="shows no tools"):
        played(database)
    assert played(database | {"environment": {"kind": "database", "calls": "hermes"}})[1] == []


@pytest.mark.parametrize(
    ("name", "faults"),
    [("Sound", []), ("Other", ["answers otherwise in another process, on cut at once"]),
     ("Raises", ["fails on a turn that is empty: KeyError: ''"]),
     ("Unpaid", ["32 of 32 whole episodes get no reward at all"]), ("Believes", ["a turn that is forged earns 1"])],
)  # fmt: skip
def test_faults_are_found(tmp_path: Path, name: str, faults: list[str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    figures, findings = played({"environment": {"kind": f"{tmp_path}/own.py:{name}"}})
    assert len(findings) == len(faults)
    for found, fault in zip(findings, faults, strict=True):
        assert fault in found.evidence
    paid = "1.000" if name not in ("Unpaid",) else "0.000"
    assert figures["perfect play"] == f"reward {paid} in 1.0 turns, 16 episodes"
