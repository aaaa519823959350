"""Tasksets and environments that others wrote for verifiers v1, unchanged.

The library runs the episode: its hooks, tools, judges and rewards. Whenever its agent asks the model, the policy says
the turn. Correct is a reward of at least the largest weight of its rubric.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from groupwise.errors import VerifierError
from groupwise.tasks.environments.base import Beside, Decided, EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.others import Others, needs, news, plain
from groupwise.tasks.environments.tools import Calling, CallingConfig, said
from groupwise.types import Problem

if TYPE_CHECKING:
    from groupwise.tasks.environments.verifiers_house import House


class VerifiersConfig(CallingConfig):
    """Settings of environments for verifiers v1."""

    taskset: Beside
    """Name of an installed taskset, or a file or a folder beside the recipe."""
    env: dict[str, JsonValue] = Field(default_factory=dict)
    """All else of verifiers' own section `[env]`, for example `{ taskset = { num_tasks = 100 } }`; an agent that has a
    `client` there is not the policy."""
    timeout_s: float = Field(300.0, gt=0, allow_inf_nan=False)
    """Seconds that a step may take, its tools' processes and its judges included, before its process is killed."""

    @field_validator("taskset")
    @classmethod
    def _is_whole(cls, taskset: str) -> str:
        return str(Path(taskset).resolve()) if Path(taskset).exists() else taskset

    @model_validator(mode="after")
    def _is_understood(self) -> "VerifiersConfig":
        try:
            self.house()
        except Exception as error:  # of their code, or of a package that it needs
            faults = [str(error)]
            if isinstance(error, ValidationError):
                faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
            raise ValueError(f"taskset = {self.taskset!r} cannot be used: {'; '.join(faults)}") from error
        return self

    def house(self) -> "House":
        """Return what this process knows of the environment. Raises ConfigError: the package is not installed."""
        needs("verifiers", "verifiers")
        from groupwise.tasks.environments.verifiers_house import house

        return house(self.taskset, json.dumps(self.env))


class Verifiers(Others, Calling):
    """One episode that verifiers runs."""

    Config = VerifiersConfig
    config: VerifiersConfig
    answers_as = "user"
    _run: "asyncio.Task[Any] | None" = None

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem]:
        assert isinstance(config, VerifiersConfig)
        return config.house().problems()

    async def start(self, problem: Problem, seed: int) -> Opening:
        self.begins(problem, seed)
        self._asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._faults = 0
        self._run = asyncio.create_task(await self.config.house().episode(problem, self._turn_for))
        if (body := await self._next()) is None:
            self._worth()
            raise VerifierError("the episode ended before its agent asked the model")
        self._past = list(map(plain, body["messages"]))
        return Opening(tuple(self._past), tuple(body.get("tools", ())))

    async def _turn_for(self, body: dict[str, Any]) -> dict[str, Any] | None:
        self._asked.put_nowait(body)
        return await self._said.get()

    async def _next(self) -> dict[str, Any] | None:
        """Return the next request for the model; None: the episode has ended."""
        assert self._run is not None
        asked = asyncio.ensure_future(self._asked.get())
        await asyncio.wait({asked, self._run}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            return None
        return asked.result()

    async def step(self, turn: Turn) -> Reply:
        self.goes_on()
        if over := self.over(turn):
            return over
        if turn.attempts and not turn.calls:  # the agent would take it for its answer
            return Reply(tuple(said(attempt.name, attempt.fault) for attempt in turn.attempts))
        text, calls = turn.text, list[dict[str, Any]]()
        for call in reversed(turn.calls):
            text = text[: call.begin] + text[call.end :]
            function = {"name": call.name, "arguments": json.dumps(call.arguments)}
            calls.insert(0, {"id": f"call_{self._turn}_{call.begin}", "type": "function", "function": function})
        message: dict[str, Any] = {"role": "assistant", "content": text.strip()}
        self._said.put_nowait(message | ({"tool_calls": calls} if calls else {}))
        if (body := await self._next()) is None:
            return self._worth()
        now = list(map(plain, body["messages"]))
        added, self._past = news(self._past, now), now
        if len(turn.calls) < len(turn.attempts):
            results = iter([each for each in added if each["role"] == "tool"])
            answers = [next(results) if a.status == "ok" else said(a.name, a.fault) for a in turn.attempts]
            added = [*answers, *(each for each in added if each["role"] != "tool")]
        return Reply(tuple(added))

    async def ended(self, reason: str) -> Reply:  # type: ignore[override]  # may be either
        self.goes_on()
        self._said.put_nowait(None)
        while await self._next() is not None:
            self._said.put_nowait(None)
        return self._worth()

    def _worth(self) -> Reply:
        assert self._run is not None
        episode = self._run.result()
        for part in (episode, *episode.traces):
            if part.errors and not part.ok:
                judges = ", ".join(self.config.house().judges)
                where = f" (its judges are asked at {judges})" if judges else ""
                raise VerifierError(f"{part.errors[-1].type}: {part.errors[-1].message}{where}")
            if part.is_timeout:
                raise VerifierError("a deadline of its own has passed")
        [trace] = [trace for trace in episode.traces if trace.agent.name == self.config.house().policy]
        rewards = {name: reward for name, reward in trace.rewards.items() if reward is not None}
        numbers: Mapping[str, float] = {name: reward.score for name, reward in rewards.items()} | trace.metrics
        evidence = ", ".join(f"{name} {number:g}" for name, number in numbers.items() if number is not None)
        if not rewards:
            return Reply(done=True, evidence=evidence)
        outcome: Decided = "correct" if trace.reward >= max(r.weight for r in rewards.values()) > 0 else "wrong"
        return Reply(reward=trace.reward, done=True, outcome=outcome, evidence=evidence)

    def close(self) -> None:
        if self._run is not None:
            self._run.cancel()
