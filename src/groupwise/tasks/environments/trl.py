"""Classes written for TRL's `environment_factory`, unchanged.

    [task.environment]
    kind = "trl"
    factory = "wordle.py:Wordle"

`reset(**row)` gets the row and `prompt`, and what it returns is put behind the last message; the other public methods
are tools; an answer without a call ends the episode, and then `get_reward()`, or the attribute `reward`, says what it
is worth. A new instance plays each episode. Random numbers of `random` are seeded before each of its methods.
"""

import inspect
from collections.abc import Iterator
from itertools import count
from typing import Any

from pydantic import ValidationInfo, field_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.errors import ConfigError
from groupwise.tasks.environments.base import EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.others import Others, plain
from groupwise.tasks.environments.tools import Calling, CallingConfig, Function, schema_of
from groupwise.types import Problem

CLASSES = Choices(
    "class for environment_factory",
    {},
    allowed=Allowed(lambda found: callable(getattr(found, "reset", None) if isinstance(found, type) else found),
                    "a class with a method `reset`, or a function that returns an instance of one"),
)  # fmt: skip
_OTHERS = ("reset", "get_reward")


class TrlConfig(CallingConfig):
    """Settings of a class for TRL."""

    factory: str
    """The class, `file.py:Class` or `package.module:Class`, or a function that makes an instance; called without
    arguments."""

    @field_validator("factory")
    @classmethod
    def _is_class(cls, factory: str, info: ValidationInfo) -> str:
        place = beside(factory, (info.context or {}).get(FOLDER))
        try:
            factory = CLASSES.find(place)
            for function in _tools(factory) if isinstance(factory, type) else ():
                schema_of(function)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return place


class Trl(Others, Calling):
    """One instance of a user's class."""

    Config = TrlConfig
    config: TrlConfig
    in_order = True

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        return (Problem(f"trl/{index}", "", "") for index in count())

    def start(self, problem: Problem, seed: int) -> Opening:
        self.begins(problem, seed)
        messages = [dict(message) for message in problem.messages or [{"role": "user", "content": problem.question}]]
        fields = {name: value for name, value in problem.data.items() if name != "tools" or value}
        self._instance = CLASSES.find(self.config.factory)()
        said = self._instance.reset(**{"prompt": messages, **fields})
        added = plain({"role": "user", "content": said})["content"]
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
            reward = self._instance.get_reward()
            reward = await reward if inspect.isawaitable(reward) else reward
        else:
            reward = getattr(self._instance, "reward", None)
        return Reply(reward=None if reward is None else float(reward), done=True, ending=ending, evidence=evidence)


def _tools(factory: type) -> list[Function]:
    members = inspect.getmembers(factory, inspect.isfunction)
    return [function for name, function in members if name not in _OTHERS and not name.startswith("_")]
