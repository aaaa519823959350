"""Environments that others wrote for tinker's cookbook: a `MessageEnv`, unchanged.

    [task.environment]
    kind = "message_env"
    factory = "guess.py:Guess"

The factory gets those of `seed`, `question`, `answer` and the fields of the problem that it names, and makes one
episode: a `MessageEnv`, the `EnvFromMessageEnv` around one, or a builder of a group, of which the first one plays.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.errors import ConfigError, VerifierError
from groupwise.tasks.environments.base import EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.others import Others, news, plain
from groupwise.types import Problem

FACTORIES = Choices("factory of a MessageEnv", {}, allowed=Allowed(callable, "a class or a function that makes one"))


class MessageEnvConfig(EnvironmentConfig):
    """Settings of a `MessageEnv`."""

    factory: str
    """Makes one: `file.py:Class`, `file.py:function` or `package.module:name`."""
    max_turn_tokens: int = Field(512, ge=1)
    """Most tokens of one turn, its stop token included."""
    max_reply_tokens: int = Field(512, ge=1)
    """Most tokens of one reply, its template included."""

    @field_validator("factory")
    @classmethod
    def _is_there(cls, factory: str, info: ValidationInfo) -> str:
        place = beside(factory, (info.context or {}).get(FOLDER))
        try:
            FACTORIES.find(place)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return place


class MessageEnv(Others):
    """One episode."""

    Config = MessageEnvConfig
    config: MessageEnvConfig

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        return (Problem(f"message_env/{index}", "", "") for index in count())

    async def start(self, problem: Problem, seed: int) -> Opening:
        self.begins(problem, seed)
        factory = FACTORIES.find(self.config.factory)
        known = {"seed": self._seed % 2**31, "question": problem.question, "answer": problem.reference, **problem.data}
        wanted = inspect.signature(factory).parameters.values()
        made = factory(**{p.name: known[p.name] for p in wanted if p.name in known})
        made = await made if inspect.isawaitable(made) else made
        if hasattr(made, "make_envs"):
            [made, *_] = await made.make_envs()
        self._env = getattr(made, "message_env", made)
        if not hasattr(self._env, "initial_observation"):
            raise VerifierError(f"the factory made {type(self._env).__name__}; allowed is a MessageEnv")
        tools: list[Mapping[str, Any]] = [tool.to_spec() for tool in getattr(self._env, "tools", ())]
        self._past = list(map(plain, await self._env.initial_observation()))
        return Opening(tuple(self._past), tuple({"type": "function", "function": tool} for tool in tools))

    async def step(self, turn: Turn) -> Reply:
        self.goes_on()
        result = await self._env.step(self._message(turn))
        metrics = ", ".join(f"{name} {number:g}" for name, number in result.metrics.items())
        reward = None if result.reward is None else float(result.reward)
        if result.episode_done:
            return Reply(reward=reward, done=True, evidence=metrics)
        now = list(map(plain, result.next_messages))
        added, self._past = news(self._past, now), now
        return Reply(tuple(added), reward=reward, evidence=metrics)

    def _message(self, turn: Turn) -> dict[str, Any]:
        text = turn.text
        for call in reversed(turn.calls):
            text = text[: call.begin] + text[call.end :]
        message: dict[str, Any] = {"role": "assistant", "content": text.strip()}
        if turn.attempts:
            from tinker_cookbook.renderers import ToolCall, UnparsedToolCall

            functions = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in turn.calls]
            bad = [attempt for attempt in turn.attempts if attempt.status != "ok"]
            message["tool_calls"] = [ToolCall(function=each, id=f"call_{i}") for i, each in enumerate(functions)]
            message["unparsed_tool_calls"] = [
                UnparsedToolCall(raw_text=turn.text[a.begin : a.end], error=a.fault) for a in bad
            ]
        return message

    def ended(self, reason: str) -> Reply:
        return Reply(reward=0.0, outcome="wrong", evidence=f"not done before {reason}")
