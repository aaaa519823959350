"""Bridges to other people's environments, each against the real package."""

from collections.abc import Callable, Mapping, Sequence
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
from message_envs import MessageEnv

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
    called = plain({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]})
    assert called["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
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
    key = property(lambda self: f"a name of its own/{self.data.answer}")
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
    named = [(problem.reference, problem.id[-19:]) for problem in problems]
    assert named == [("0", "a name of its own/0"), ("1", "a name of its own/1")]
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
    unpaid = {"highest": 2, "task": {"rewards": {name: {"weight": 0} for name in ("won", "short")}}}
    [last] = replies(played(configured("verifiers", taskset=taskset, env={"taskset": unpaid}), problems[1], ["1"]))
    assert (last["reward"], last["outcome"]) == (0, "wrong"), "nothing is right where nothing is paid for"
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


@pytest.mark.filterwarnings("ignore")
def test_its_judges_are_asked_and_one_that_is_not_there_is_named(taskset: str, endpoint: Any) -> None:
    def judge(exchange: Any, _: int) -> None:
        word = "no" if "```\na\n```" in exchange.server.bodies[-1]["messages"][-1]["content"] else "yes"
        exchange.say(word, id="", object="chat.completion", created=0, model="judge", usage=None)

    endpoint.behaviour = judge
    judges = [{"id": "reference", "base_url": endpoint.url, "model": "strict"}]
    config = configured("verifiers", taskset=taskset, env={"taskset": {"task": {"judges": judges}}})
    problem = problems_of(config)[1]
    rewards = [replies(played(config, problem, [said]))[-1] for said in ("1", "a")]
    assert [reply["evidence"] for reply in rewards] == [f"short 1, won {n}, reference {n}" for n in (1, 0)]
    endpoint.shutdown()
    endpoint.server_close()
    assert f"(its judges are asked at {endpoint.url}, strict)" in played(config, problem, ["b"]).failed


OPENENV = """
import random
from enum import Enum
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

class Number(Action):
    guess: int
class Hint(Observation):
    hint: str = ""
class Guess(Environment):
    state = State()

    def reset(self, seed=None, episode_id=None, highest=9):
        self.secret = random.Random(seed).randint(1, highest)
        return Hint(hint=f"1 to {highest}", done=highest == 1)

    def step(self, action, timeout_s=None):
        if action.guess < 0:
            raise RuntimeError("negative")
        won = action.guess == self.secret
        return Hint(hint="equal" if won else "higher" if action.guess < self.secret else "lower", done=won, reward=won)
class Way(str, Enum):
    up = "up"
    down = "down"
class Move(Action):
    way: Way = Way.up
    steps: int = 1
class Place(Observation):
    height: int = 0
    place: str = "hill"
    hint: str | None = None  # is read, too
class Climb(Environment):
    state = State()

    def reset(self, seed=None, episode_id=None):
        self.height = 0
        return Place()

    def step(self, action, timeout_s=None):
        self.height += action.steps if action.way == Way.up else -action.steps
        return Place(height=self.height, done=self.height == 3, reward=1.0 if self.height == 3 else None)
class Adding(MCPEnvironment):
    state = State()

    def __init__(self):
        mcp = FastMCP("adding")

        @mcp.tool
        def add(number: int) -> int:
            self.total += number
            return self.total

        super().__init__(mcp)

    def reset(self, seed=None, episode_id=None):
        self.total = 0
        return Observation(metadata={"message": "Make it 5."})

    def _step_impl(self, action, timeout_s=None):
        raise NotImplementedError

    async def step_async(self, action, timeout_s=None):
        seen = await super().step_async(action, timeout_s=timeout_s)
        seen.reward, seen.done = float(self.total == 5), self.total == 5
        return seen

guess = create_app(Guess, Number, Hint)
climb = create_app(Climb, Move, Place)
adding = create_app(Adding, CallToolAction, CallToolObservation)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., EnvironmentConfig]:
    pytest.importorskip("openenv", reason="the servers of this test need pip install openenv==0.10.0")
    pytest.importorskip("websockets", reason="needs pip install 'groupwise[openenv]'")
    (folder := tmp_path_factory.mktemp("served")).joinpath("served.py").write_text(OPENENV)

    def configure(app: str, **settings: Any) -> EnvironmentConfig:
        command = f"python -m uvicorn served:{app} --port {{port}}"
        return configured("openenv", command=command, folder=str(folder), **settings)

    return configure


def test_a_server_of_openenv_has_room_for_one_session_and_plays_three(served: Callable[..., EnvironmentConfig]) -> None:
    config = served("guess")
    problem = replace(problems_of(config)[0], question="Guess.", data={"highest": 3})
    workers = CREWS.of(config)
    turns = [[Turn(text) for text in said] for said in (["1", "2"], ["2", "3"], ["3", "1"])]
    for number in range(3):
        now = [workers.play(0, str(i), problem, 0, said[:number]).result() for i, said in enumerate(turns)]
    assert [len(replies(each)) for each in now] == [1, 1, 1]
    many = [workers.play(0, f"many/{i}", problem, i, []) for i in range(60)]
    assert not any(each.result().failed for each in many)
    [first, second] = replies(played(config, problem, ["x", "9"]))
    assert first["messages"][0]["content"] == 'error: bad_argument: guess = "x": integer is needed'
    assert second["messages"] == [{"role": "user", "content": "lower"}]
    won = [replies(played(config, problem, [guess]))[0] for guess in "123"]
    assert sorted((reply["reward"], reply["done"]) for reply in won) == [(0, False), (0, False), (1, True)]
    assert played(config, problem, []).opening["messages"][0]["content"] == "Guess.\n1 to 3"
    assert "done at its reset" in workers.play(0, "over", replace(problem, data={"highest": 1}), 0, []).result().failed
    assert "EXECUTION_ERROR: negative" in played(config, problem, ["-1"]).failed
    [_, end] = replies(played(config, problem, ["x"], "turn_limit"))
    assert (end["reward"], end["outcome"]) == (0, "wrong")


def test_an_action_of_several_fields_is_a_call(served: Callable[..., EnvironmentConfig]) -> None:
    [problem] = problems_of(served("climb"), 1)
    turns = [Turn("", (call("act", way="up", steps=1),)), Turn("so"), Turn("", (call("act", way="left", steps=1),))]
    turns.append(Turn("", (call("act", way="down", steps=-2), call("act", way="up", steps=9))))
    whole = played(served("climb"), problem, turns)
    [tool] = whole.opening["tools"]
    assert tool["function"]["parameters"]["properties"]["way"]["enum"] == ["up", "down"]
    first, second, third, last = replies(whole)
    assert first["messages"] == [
        {"role": "tool", "name": "act", "content": '{"height": 1, "hint": null, "place": "hill"}'}
    ]
    assert second["messages"] == [{"role": "user", "content": "error: no_name: call one of act"}]
    assert third["messages"][0]["content"].startswith("error: bad_argument")
    assert (last["reward"], last["done"]) == (1, True)
    assert "more than a text can say (way, steps)" in played(served("climb", calls="none"), problem, []).failed


def test_its_mcp_tools_are_the_models(served: Callable[..., EnvironmentConfig]) -> None:
    whole = played(served("adding"), problems_of(served("adding"))[0], [Turn("", (call("add", number=5),))])
    assert whole.opening["messages"][0]["content"] == "Make it 5."
    assert [tool["function"]["name"] for tool in whole.opening["tools"]] == ["add"]
    [reply] = replies(whole)
    assert (reply["reward"], reply["done"]) == (1, True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "allowed is one of them"), ({"url": "http://x", "command": "y"}, "one of them"),
     ({"command": "python -m x"}, "has no {port}")],
)  # fmt: skip
def test_a_server_is_named_or_started(settings: dict[str, str], message: str) -> None:
    pytest.importorskip("websockets")
    with pytest.raises(ValueError, match=message):
        configured("openenv", **settings)


def test_a_game_of_textarena_is_played_alone_and_against_others(tmp_path: Path) -> None:
    pytest.importorskip("textarena", reason="needs pip install 'groupwise[textarena]'")
    config = configured("textarena", game="GuessTheNumber-v0", settings={"min_number": 1, "max_number": 4})
    first, second = problems_of(config, 2)
    games = [replies(played(config, first, [f"[{n}]"]))[0] for n in range(1, 5)]
    assert sorted(str(game["outcome"]) for game in games) == ["", "", "", "correct"]
    assert [game["reward"] for game in games if game["done"]] == [1]
    assert {game["messages"][0]["content"] for game in games if not game["done"]} <= {
        "The target number is higher.", "The target number is lower."
    }  # fmt: skip
    [unread, late] = replies(played(config, second, ["three"], "turn_limit"))
    assert "Invalid move format" in unread["messages"][0]["content"]
    assert (late["reward"], late["outcome"]) == (0, "wrong")
    (tmp_path / "own.py").write_text(
        "import asyncio\ndef last(seen):\n    asyncio.run(asyncio.sleep(0))\n"
        "    return seen.split('Available Moves: ')[-1].split(\"'\")[-2]\n"
    )
    config = configured("textarena", game="TicTacToe-v0", num_players=2, opponent=f"{tmp_path}/own.py:last")
    problem = problems_of(config)[0]
    *_, last = replies(played(config, problem, ["[0]", "[1]", "[2]"]))
    assert (last["reward"], last["done"], last["outcome"]) == (1, True, "correct")
    config = configured("textarena", game="TicTacToe-v0", num_players=2, opponent="random")
    assert len({str(played(config, problem, ["[0]"], seed=seed).replies) for seed in range(6)}) > 1
    config = configured("textarena", game="Breakthrough-v0", num_players=2, opponent="random")
    lost = played(config, problem, ["[a2a3]", "[b2b3]"])
    assert "the opponent random lost by a move that is not allowed" in lost.failed
    with pytest.raises(ValueError, match="has no game 'Gess'; near are GuessWho-v0"):
        configured("textarena", game="Gess")
    with pytest.raises(ValueError, match="allowed are both, or neither"):
        configured("textarena", game="TicTacToe-v0", num_players=2)


MESSAGE_ENV = """
import random
from types import SimpleNamespace
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.types import EnvGroupBuilder
from tinker_cookbook.tool_use import AgentToolMessageEnv, simple_tool_result, tool

class Guess(MessageEnv):
    def __init__(self, question, answer, forgets=False, stop=None):
        self.question, self.answer, self.forgets, self.stop = question, answer, forgets, stop

    async def initial_observation(self):
        self.said = [{"role": "system", "content": "Guess."}, {"role": "user", "content": self.question}]
        return self.said

    async def step(self, message):
        won = message["content"] == self.answer
        hint = {"role": "user", "content": [{"type": "text", "text": f"no {random.random()}"}]}
        self.said = self.said[1 if self.forgets else 0 :] + [message, hint]
        return MessageStepResult(float(won), won, self.said, {"won": won}, next_stop_condition=self.stop)

@tool
async def double(number: int) -> str:
    '''Double it.'''
    return simple_tool_result(str(number * 2))

async def graded(history):
    return float(history[-1]["content"] == "14"), {"graded": 1.0}

def agent(answer):
    return AgentToolMessageEnv(
        tools=[double], initial_messages=[{"role": "user", "content": "7 twice?"}], max_turns=4, reward_fn=graded)

class Group(EnvGroupBuilder):
    limits = {}

    def __init__(self, question, answer):
        self.of = question, answer

    async def make_envs(self):
        renderer = SimpleNamespace(get_stop_sequences=list)
        return [EnvFromMessageEnv(renderer, Guess(*self.of), context_overflow_reward=-0.5, **self.limits)] * 2

class Limited(Group):
    limits = {"max_generation_tokens": 512, "max_trajectory_tokens": 99}

class Ranked(Group):
    async def compute_group_rewards(self, trajectories, envs):
        return [(1.0, {}) for _ in trajectories]
"""


@pytest.mark.filterwarnings("ignore")
def test_a_message_env_of_tinker_plays_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("tinker_cookbook", reason="needs pip install 'groupwise[tinker]'")
    (tmp_path / "own.py").write_text(MESSAGE_ENV)
    config = configured("message_env", factory=f"{tmp_path}/own.py:Guess")
    assert ENVIRONMENTS.find("message_env") is MessageEnv
    problem = Problem("row", "1 to 9?", "4")
    whole = played(config, problem, ["3", "4"])
    assert [message["role"] for message in whole.opening["messages"]] == ["system", "user"]
    first, last = replies(whole)
    assert (first["reward"], first["done"], first["messages"][0]["content"][:5]) == (0, False, "no 0.")
    assert (last["reward"], last["done"], last["evidence"]) == (1, True, "won 1")
    forgets = replace(problem, data={"forgets": True})
    assert "it asks again behind another past, from message 0 on" in played(config, forgets, ["3"]).failed
    stops = replace(problem, data={"stop": ["</answer>"]})
    assert "next_stop_condition is ['</answer>']" in played(config, stops, ["3"]).failed
    config = configured("message_env", factory=f"{tmp_path}/own.py:agent")
    bad = Attempt("bad_json", 0, 1, evidence="no JSON")
    whole = played(config, problem, [Turn("so ", (call("double", number=7),)), "14"])
    assert [tool["function"]["name"] for tool in whole.opening["tools"]] == ["double"]
    first, last = replies(whole)
    assert first["messages"] == [{"role": "tool", "content": "14", "name": "double"}]
    assert (last["reward"], last["done"]) == (1, True)
    [failed] = replies(played(config, problem, [Turn("{", (bad,))]))
    assert (failed["reward"], failed["done"]) == (-0.1, True)
    [failed] = replies(played(config, problem, [Turn("", (call("double", number=7), replace(bad, status="forged")))]))
    assert (failed["outcome"], failed["ending"]) == ("wrong", "malformed_call")
    config = configured("message_env", factory=f"{tmp_path}/own.py:Group")
    cut, late = (replies(played(config, problem, ["3"], ended))[-1] for ended in ("length", "turn_limit"))
    assert (cut["reward"], late["reward"]) == (-0.5, 0)
    ranked, limited = (configured("message_env", factory=f"{tmp_path}/own.py:{n}") for n in ("Ranked", "Limited"))
    assert "Ranked has compute_group_rewards" in played(ranked, problem, []).failed
    assert "has max_trajectory_tokens = 99, which nothing keeps; allowed" in played(limited, problem, []).failed
