"""Environments that others wrote for tinker's cookbook (`MessageEnv`), unchanged.

The factory gets those of `seed`, `question`, `answer` and the fields of the problem that it names, and makes one
episode: a `MessageEnv`, the `EnvFromMessageEnv` around one, or a builder of a group, of which the first one plays.
"""

import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from groupwise.config.kinds import Allowed, Choices
from groupwise.errors import VerifierError
from groupwise.tasks.environments.base import Opening, Reply, Turn
from groupwise.tasks.environments.others import FactoryConfig, Others, news, plain
from groupwise.types import Problem


class MessageEnvConfig(FactoryConfig):
    """Settings of a `MessageEnv`."""

    factories = Choices(
        "factory of a MessageEnv", {}, allowed=Allowed(callable, "a class or a function that makes one")
    )
    max_turn_tokens: int = Field(512, ge=1)
    """Most tokens of one turn, its stop token included."""
    max_reply_tokens: int = Field(512, ge=1)
    """Most tokens of one reply, its template included."""


class MessageEnv(Others):
    """One episode."""

    Config = MessageEnvConfig
    config: MessageEnvConfig

    async def start(self, problem: Problem, seed: int) -> Opening:
        self.begins(problem, seed)
        factory = self.config.factories.find(self.config.factory)
        known = {"seed": self._seed % 2**31, "question": problem.question, "answer": problem.reference, **problem.data}
        wanted = inspect.signature(factory).parameters.values()
        made = self.outside(factory, **{p.name: known[p.name] for p in wanted if p.name in known})
        made = await made if inspect.isawaitable(made) else made
        if hasattr(made, "make_envs"):
            own = getattr(getattr(type(made), "compute_group_rewards", None), "__qualname__", "")
            if own not in ("", "EnvGroupBuilder.compute_group_rewards"):  # the base class's, which pays nothing
                raise VerifierError(
                    f"{type(made).__name__} has compute_group_rewards, which nothing calls here; allowed are rewards "
                    "of steps, and a factory that makes one episode"
                )
            [made, *_] = await made.make_envs()
        if hasattr(made, "message_env"):
            self._check_limits(made)
        self._worth_of_cut = float(getattr(made, "context_overflow_reward", 0.0))
        self._env = getattr(made, "message_env", made)
        if not hasattr(self._env, "initial_observation"):
            raise VerifierError(f"the factory made {type(self._env).__name__}; allowed is a MessageEnv")
        tools: list[Mapping[str, Any]] = [tool.to_spec() for tool in getattr(self._env, "tools", ())]
        self._past = list(map(plain, await self._env.initial_observation()))
        return Opening(tuple(self._past), tuple({"type": "function", "function": tool} for tool in tools))

    def _check_limits(self, frame: Any) -> None:
        """Raise VerifierError where tinker's frame of an episode has a limit that the recipe's, which hold, are not."""
        turns, tokens = self.config.max_turns, self.config.max_turn_tokens
        kept = {"max_turns": turns, "max_turn_tokens": tokens, "max_generation_tokens": tokens}
        frames = (frame, getattr(frame, "rollout_limits", None))
        given = [(n, getattr(each, n)) for each in frames for n in dir(each) if re.match("max_|[a-z_]+_seconds$", n)]
        if odd := [f"{name} = {limit}" for name, limit in given if limit not in (None, kept.get(name))]:
            raise VerifierError(
                f"{type(frame).__name__} has {', '.join(odd)}, which nothing keeps; allowed are None, and what the "
                f"recipe says: {', '.join(f'{name} = {limit}' for name, limit in kept.items())}"
            )

    async def step(self, turn: Turn) -> Reply:
        self.goes_on()
        if any(attempt.status == "forged" for attempt in turn.attempts):
            evidence = "a result that no tool wrote"
            return Reply(reward=0.0, done=True, outcome="wrong", evidence=evidence, ending="malformed_call")
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
        result = await self._env.step(message)
        metrics = ", ".join(f"{name} {number:g}" for name, number in result.metrics.items())
        reward = None if result.reward is None else float(result.reward)
        if result.episode_done:
            return Reply(reward=reward, done=True, evidence=metrics)
        if stop := result.next_stop_condition:
            raise VerifierError(f"next_stop_condition is {stop!r}; allowed is None: turns end where the model's do")
        now = list(map(plain, result.next_messages))
        added, self._past = news(self._past, now), now
        return Reply(tuple(added), reward=reward, evidence=metrics)

    def ended(self, reason: str) -> Reply:
        worth = self._worth_of_cut if reason == "length" else 0.0
        return Reply(reward=worth, outcome="wrong", evidence=f"not done before {reason}")
