"""Classes that others wrote for TRL, unchanged; and what all bridges to the environments of others share.

`reset(**row)` gets the row and `prompt`, and what it returns is put behind the last message; the other public
methods are tools; an answer without a call ends the episode, and then `get_reward()`, or the attribute `reward`, says
what it is worth. A new instance plays each episode.
"""

import importlib.util
import inspect
import json
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from groupwise.config.kinds import Allowed, Choices
from groupwise.errors import ConfigError, VerifierError
from groupwise.randomness import key
from groupwise.tasks.environments.base import Beside, Environment, EnvironmentConfig, Message, Opening, Reply, Turn
from groupwise.tasks.environments.tools import Calling, CallingConfig, Function, schema_of
from groupwise.types import Problem


def needs(package: str, extra: str) -> None:
    """Check that a package can be imported. Raises ConfigError: it says what to install."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"environment.kind = {extra!r} needs {package}: pip install 'groupwise[{extra}]'")


class Others(Environment):
    """An environment that somebody else wrote; `random` and NumPy's are seeded before each of its methods."""

    alone = True
    _seed, _turn = 0, -1

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        return (Problem(f"{config.kind}/{index}", "", "") for index in count())

    def ended(self, reason: str) -> Any:
        return Reply(reward=0.0, outcome="wrong", evidence=f"not done before {reason}")

    def begins(self, problem: Problem, seed: int) -> None:
        self._seed, self._turn = key("others", seed, problem.id), -1
        self.goes_on()

    def goes_on(self) -> None:
        self._turn += 1
        random.seed(number := key("others", self._seed, self._turn))
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(number % 2**32)


def plain(message: Any) -> dict[str, Any]:
    """Return role, content (VerifierError: no text), calls and the tool's name of OpenAI's, or a class's, message."""
    said = message if isinstance(message, Mapping) else vars(message)
    content = said.get("content") or ""
    if not isinstance(content, str | list | tuple):
        raise VerifierError(f"a message holds {type(content).__name__}; allowed is text, or a list of its parts")
    if not isinstance(content, str):
        parts = [part if isinstance(part, Mapping) else vars(part) for part in content]
        if other := next((part for part in parts if part.get("type") not in ("text", "thinking")), None):
            raise VerifierError(f"a message holds {other.get('type')!r}; allowed is text")
        content = "\n".join(part["text"] for part in parts if part["type"] == "text")
    name = {"name": str(said["name"])} if said.get("name") else {}
    given = (call if isinstance(call, Mapping) else call.model_dump() for call in said.get("tool_calls") or ())
    made = ({**call["function"], "arguments": json.loads(call["function"]["arguments"] or "{}")} for call in given)
    calls = [{"type": "function", "function": function} for function in made]
    return {"role": str(said["role"]), "content": content, **name, **({"tool_calls": calls} if calls else {})}


def news(past: Iterable[Message], now: Iterable[Message]) -> list[Message]:
    """Return the messages behind the answer to `past`, of a whole conversation (VerifierError: another, or none)."""
    past, now = list(past), list(now)
    if now[: len(past)] != past or [m["role"] for m in now[len(past) : len(past) + 1]] != ["assistant"]:
        at = next((i for i, (a, b) in enumerate(zip(past, now, strict=False)) if a != b), min(len(past), len(now)))
        raise VerifierError(
            f"it asks again behind another past, from message {at} on: {str(now[at : at + 1])[:120]}; allowed is one "
            "conversation that grows at its end"
        )
    if not (added := now[len(past) + 1 :]):
        raise VerifierError("it asks again and has added nothing; allowed are messages behind each answer")
    return added


class FactoryConfig(EnvironmentConfig):
    """Settings of what a factory makes."""

    factory: Beside
    """Makes an episode: `file.py:Class` or `package.module:Class`, or a function that does. For TRL it is called
    without arguments."""
    factories: ClassVar[Choices]

    @field_validator("factory")
    @classmethod
    def _is_there(cls, factory: str) -> str:
        try:
            cls.check(cls.factories.find(factory))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return factory

    @classmethod
    def check(cls, factory: Any) -> None:
        """Check it further (ConfigError)."""


class TrlConfig(FactoryConfig, CallingConfig):
    """Settings of a class for TRL."""

    factories = Choices(
        "class for environment_factory", {},
        allowed=Allowed(lambda found: callable(getattr(found, "reset", None) if isinstance(found, type) else found),
                        "a class with a method `reset`, or a function that returns an instance of one"),
    )  # fmt: skip

    @classmethod
    def check(cls, factory: Any) -> None:
        list(map(schema_of, _tools(factory) if isinstance(factory, type) else ()))


class Trl(Others, Calling):
    """One instance of a user's class."""

    Config = TrlConfig
    config: TrlConfig
    in_order = True

    async def start(self, problem: Problem, seed: int) -> Opening:
        self.begins(problem, seed)
        messages = [dict(message) for message in problem.messages or [{"role": "user", "content": problem.question}]]
        fields = {name: value for name, value in problem.data.items() if name != "tools" or value}
        self._instance = self.config.factories.find(self.config.factory)()
        asked = {"prompt": messages} if problem.messages or problem.question else {}  # else the class makes its own
        said = self.outside(self._instance.reset, **{**asked, **fields})
        added = plain({"role": "user", "content": await said if inspect.isawaitable(said) else said})["content"]
        messages[-1] = {**messages[-1], "content": messages[-1]["content"] + added}
        return self.begun(
            [getattr(self._instance, function.__name__) for function in _tools(type(self._instance))], messages
        )

    async def step(self, turn: Turn) -> Reply:
        self.goes_on()
        reply = await super().step(turn)
        return reply if not reply.done else await self._worth(reply.evidence, reply.ending)

    async def judged(self, text: str) -> Reply:
        return Reply(done=True)

    async def ended(self, reason: str) -> Reply:  # type: ignore[override]  # may be either
        return await self._worth("")

    async def _worth(self, evidence: str, ending: Any = "") -> Reply:
        if hasattr(self._instance, "get_reward"):
            reward = self.outside(self._instance.get_reward)
            reward = await reward if inspect.isawaitable(reward) else reward
        else:
            reward = getattr(self._instance, "reward", None)
        if reward is None:
            evidence = f"neither get_reward() nor the attribute reward of {type(self._instance).__name__} says a number"
        outcome: Literal["wrong", ""] = "wrong" if ending else ""
        return Reply(reward=reward, done=True, outcome=outcome, ending=ending, evidence=evidence)


def _tools(factory: type) -> list[Function]:
    members = inspect.getmembers(factory, inspect.isfunction)
    return [tool for name, tool in members if name not in ("reset", "get_reward") and not name.startswith("_")]
