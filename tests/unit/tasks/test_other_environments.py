"""Bridges to other people's environments, each against the real package."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import VerifierError
from groupwise.rollout.environments import Crews, Played
from groupwise.tasks.environments.base import ENVIRONMENTS, Attempt, EnvironmentConfig, Turn
from groupwise.tasks.environments.others import news, plain
from groupwise.types import Problem

CREWS = Crews()
USER, ANSWER = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}


def configured(kind: str, **settings: Any) -> EnvironmentConfig:
    config = ENVIRONMENTS.settings(kind).model_validate({"kind": kind, "num_workers": 1, **settings})
    assert isinstance(config, EnvironmentConfig)
    return config


def problems_of(config: EnvironmentConfig, number: int = 3) -> list[Problem]:
    found = ENVIRONMENTS.find(config.kind).problems(config)
    assert found is not None
    return list(islice(found, number))


def played(
    config: EnvironmentConfig, problem: Problem, said: Sequence[Turn | str], ended: str = "", seed: int = 0
) -> Played:
    """Play turn by turn, then the whole again, which must be the same; returns the whole."""
    turns = [Turn(turn) if isinstance(turn, str) else turn for turn in said]
    workers = CREWS.of(config)
    steps = [workers.play(0, "a", problem, seed, turns[:n]).result() for n in range(len(turns) + 1)]
    if ended:
        steps.append(workers.play(0, "a", problem, seed, turns, ended).result())
    whole = workers.play(0, "b", problem, seed, turns, ended, whole=True).result()
    if not any(step.failed for step in steps):
        assert [step.replies[-1] for step in steps[1:]] == list(whole.replies)
        assert all(step.opening == whole.opening for step in steps)
    return whole


def replies(whole: Played) -> list[Mapping[str, Any]]:
    assert not whole.failed, whole.failed
    return [reply for reply in whole.replies if reply]


def call(name: str, **arguments: Any) -> Attempt:
    return Attempt("ok", 0, 0, name, arguments)


def test_a_conversation_that_is_given_whole_may_only_grow() -> None:
    assert news([USER], [USER, ANSWER, USER]) == [USER]
    with pytest.raises(VerifierError, match="behind another past, from message 0 on"):
        news([USER], [{**USER, "content": "??"}, ANSWER, USER])
    with pytest.raises(VerifierError, match="from message 1 on"):
        news([USER], [USER, USER])
    with pytest.raises(VerifierError, match="has added nothing"):
        news([USER], [USER, ANSWER])
    assert plain({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}) == {
        "role": "user", "content": "a\nb",
    }  # fmt: skip
    with pytest.raises(VerifierError, match="'image_url'; allowed is text"):
        plain({"role": "user", "content": [{"type": "image_url"}]})


VERIFIERS = """
import random
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str

class Guess(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def won(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def short(self, trace: vf.Trace) -> float:
        return {"nan": float("nan"), "raise": 1 / 0 if trace.last_reply == "raise" else 0.0}.get(
            trace.last_reply, float(len(trace.last_reply) < 3))

class Config(vf.TasksetConfig):
    highest: int = 3

class Guesses(vf.Taskset[Guess, Config]):
    def load(self):
        return (Guess(Data(prompt=f"{n}?", system_prompt="Guess.", answer=str(n)), self.config.task)
                for n in range(self.config.highest))

class PlayConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()

class Play(vf.Env[PlayConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as talk:
            said = await talk.turn()
            while not said.terminated and said.last_reply.isdigit() and said.last_reply != task.data.answer:
                said = await talk.turn(f"no {random.random()}")

__all__ = ["Guesses", "Play"]
"""
TOOLS = '''
import verifiers.v1 as vf

class Notes(vf.State):
    looks: int = 0

class Rooms(vf.Toolset[vf.ToolsetConfig, Notes]):
    @vf.tool
    async def look(self, room: int) -> str:
        """Look a room up."""
        self.state.looks += 1
        return f"{room * 7}"

class TaskConfig(vf.TaskConfig):
    tools: vf.ToolsetConfig = vf.ToolsetConfig()

class Search(vf.Task[vf.TaskData, Notes, TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Rooms(config.tools)]

    @vf.reward
    async def looked(self, trace) -> float:
        return float(trace.state.looks)

class Config(vf.TasksetConfig):
    task: TaskConfig = TaskConfig()

class Searches(vf.Taskset[Search, Config]):
    def load(self):
        return [Search(vf.TaskData(prompt="The code?"), self.config.task)]

__all__ = ["Searches"]

if __name__ == "__main__":
    Rooms.run()
'''


@pytest.fixture
def taskset(tmp_path: Path) -> str:
    pytest.importorskip("verifiers.v1", reason="needs pip install 'groupwise[verifiers]'")
    (tmp_path / f"{tmp_path.name}_v1.py").write_text(VERIFIERS)
    return str(tmp_path / f"{tmp_path.name}_v1.py")


@pytest.mark.filterwarnings("ignore")
def test_an_environment_for_verifiers_plays_unchanged(taskset: str) -> None:
    config = configured("verifiers", taskset=taskset, env={"taskset": {"highest": 2}})
    problems = problems_of(config)
    assert [problem.reference for problem in problems] == ["0", "1"]
    whole = played(config, problems[1], ["0", "2", "1"])
    assert whole.opening["messages"] == [{"role": "system", "content": "Guess."}, {"role": "user", "content": "1?"}]
    first, second, last = replies(whole)
    assert (first["reward"], first["done"], first["messages"][0]["role"]) == (None, False, "user")
    assert first["messages"] != second["messages"], "random is seeded at each turn"
    assert (last["reward"], last["outcome"], last["evidence"]) == (1.5, "correct", "short 1, won 1")
    assert replies(played(config, problems[1], ["0"])) == [first]
    assert replies(played(config, problems[1], ["0"], seed=1)) != [first]
    [_, cut] = replies(played(config, problems[1], ["0"], "turn_limit"))
    assert (cut["reward"], cut["outcome"]) == (0.5, "wrong")
    assert "won" not in played(config, problems[1], ["raise"]).failed
    assert "ZeroDivisionError" in played(config, problems[1], ["raise"]).failed
    assert "nan" in played(config, problems[1], ["nan"]).failed
    moved = replace(problems[1], data={"task": 0, "key": problems[1].data["key"]})
    assert "loads another task" in played(config, moved, []).failed


@pytest.mark.filterwarnings("ignore")
def test_its_tools_are_called_in_the_models_format(tmp_path: Path) -> None:
    pytest.importorskip("verifiers.v1")
    (place := tmp_path / "rooms_of_a_test.py").write_text(TOOLS)
    config = configured("verifiers", taskset=str(place))
    bad = Attempt("bad_json", 0, 1, evidence="no JSON")
    turns = [Turn("", (bad, call("rooms_look", room=3), call("rooms_look", room=4))), Turn("{", (bad,)), Turn("28")]
    whole = played(config, problems_of(config)[0], turns)
    assert [tool["function"]["name"] for tool in whole.opening["tools"]] == ["rooms_look"]
    first, second, last = replies(whole)
    assert [message["content"] for message in first["messages"]] == ["error: bad_json: no JSON", "21", "28"]
    assert [message["content"] for message in second["messages"]] == ["error: bad_json: no JSON"]
    assert last["reward"] == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"player": {"harness": {"id": "bash"}}}, "would run what the model wrote"),
        ({"player": {"client": {"type": "eval", "base_url": "http://127.0.0.1:1"}}}, "allowed is one, the policy"),
        ({"taskset": {"lowest": 1}}, "lowest"),
        ({"id": "user_sim"}, "assistant.*user.*allowed is one"),
    ],
)
def test_what_it_asks_for_and_is_not_there_is_a_sentence(taskset: str, env: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configured("verifiers", taskset=taskset, env=env)
