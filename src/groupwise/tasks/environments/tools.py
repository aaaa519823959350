"""Functions that the model calls in its own format, until it answers without a call.

    [task.environment]
    kind = "tools"
    tools = ["calculator", "python", "my_tools.py:search"]

A tool is a function with type hints and a docstring with `Args:`, `async` or not. Every attempt of a turn is answered,
in the order of the calls, a bad one by its fault. What a function raises is an answer, too; `GroupwiseError`,
`ConnectionError` and `MemoryError` are faults of the environment.
"""

import asyncio
import inspect
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from groupwise.config import FOLDER
from groupwise.config.kinds import Allowed, Choices
from groupwise.config.places import beside
from groupwise.errors import ConfigError, GroupwiseError, VerifierError
from groupwise.tasks.environments.base import (
    Attempt,
    Decided,
    Environment,
    EnvironmentConfig,
    Message,
    Opening,
    Reply,
    Turn,
)
from groupwise.tasks.environments.schema import schema_of
from groupwise.types import Problem
from groupwise.verifiers import Verifier, VerifierConfig, make_verifier
from groupwise.verifiers.table import VERIFIERS

MOST_CALLS = 8
"""Most calls of one turn; others are answered together, by one sentence."""
BROKEN = (GroupwiseError, ConnectionError, MemoryError)
"""Exceptions of a tool that are no answer: its environment has failed."""

Function = Callable[..., Any]
FUNCTIONS = Choices(
    "tool",
    {"calculator": "groupwise.rollout.tools.calculator:calculator", "python": "groupwise.rollout.tools.python:python"},
    allowed=Allowed(callable, "a function with type hints and a docstring"),
)


class CallingConfig(EnvironmentConfig):
    """Settings of environments whose tools the model calls."""

    max_turns: int = Field(8, ge=1)
    """Most turns of the model in an episode."""
    max_turn_tokens: int = Field(512, ge=1)
    """Most tokens of one turn, its stop token included; a call that is cut is not run, and ends it by `length`."""
    max_reply_tokens: int = Field(512, ge=256)
    """Most tokens of all results of a turn; the longest are cut first, and say so."""
    max_faults: int = Field(2, ge=0)
    """Most turns in a row with a call that cannot be run; one more ends the episode (`fault_limit`)."""


class Calling(Environment):
    """Answers calls; a turn without one ends the episode, and `judged` says what it is worth."""

    answers_as = "tool"
    config: CallingConfig
    in_order = False
    """True where the calls of a turn share something, and are run one after another."""

    def begun(self, functions: Sequence[Function], messages: Sequence[Mapping[str, Any]]) -> Opening:
        self._faults, self._functions = 0, {function.__name__: function for function in functions}
        return Opening(tuple(messages), tuple(map(schema_of, functions)))

    def over(self, turn: Turn) -> Reply | None:
        """Return the end where a result is forged, or too many turns in a row have bad calls."""
        if any(attempt.status == "forged" for attempt in turn.attempts):
            return _wrong("malformed_call", "a result that no tool wrote")
        self._faults = 0 if len(turn.calls) == len(turn.attempts) else self._faults + 1
        return _wrong("fault_limit", _counted(turn)) if self._faults > self.config.max_faults else None

    async def step(self, turn: Turn) -> Reply:
        if over := self.over(turn):
            return over
        if not turn.attempts:
            return await self.judged(turn.text)
        asked, others = turn.attempts[:MOST_CALLS], len(turn.attempts) - MOST_CALLS
        if self.in_order:
            texts = [await self._answered(attempt) for attempt in asked]
        else:
            texts = await asyncio.gather(*map(self._answered, asked))
        messages = [said(attempt.name, text) for attempt, text in zip(asked, texts, strict=True)]
        if others > 0:
            messages.append(said("", f"error: {others} more calls were not run; at most {MOST_CALLS} are allowed"))
        return Reply(tuple(messages), evidence=_counted(turn))

    async def _answered(self, attempt: Attempt) -> str:
        if attempt.status != "ok":
            return attempt.fault
        function = self._functions[attempt.name]
        try:
            if inspect.iscoroutinefunction(function):
                result = await function(**attempt.arguments)
            elif self.in_order:
                result = function(**attempt.arguments)
            else:
                result = await asyncio.to_thread(function, **attempt.arguments)
            return str(result)
        except BROKEN:
            raise
        except Exception as error:  # the model reads it
            return f"error: {type(error).__name__}: {error}"

    @abstractmethod
    async def judged(self, text: str) -> Reply:
        """Judge the answer; it is the last reply."""

    def ended(self, reason: str) -> Reply:
        return Reply(reward=0.0, outcome="wrong", evidence=f"no answer before {reason}")


def calling(name: str, **arguments: Any) -> Turn:
    """Return a turn of a script: one call of a tool."""
    return Turn("", (Attempt("ok", 0, 0, name, arguments),))


def _wrong(ending: Literal["fault_limit", "malformed_call"], evidence: str) -> Reply:
    return Reply(reward=0.0, done=True, outcome="wrong", ending=ending, evidence=evidence)


def _counted(turn: Turn) -> str:
    counts = Counter(f"{attempt.name or 'a call'}: {attempt.status}" for attempt in turn.attempts)
    return ", ".join(f"{number} × {what}" if number > 1 else what for what, number in counts.items())


def said(name: str, text: str) -> Message:
    """Return a tool's message."""
    return {"role": "tool", "name": name or "unknown", "content": text}


class ToolsConfig(CallingConfig):
    """Settings of tools."""

    tools: tuple[str, ...] = Field(min_length=1)
    """Functions: `calculator`, `python` (in the sandbox), `file.py:function`."""
    verifier: Annotated[VerifierConfig, VERIFIERS] | None = None
    """Judges the answer, which is the last turn without its thinking; None: that of the problems' task."""

    @field_validator("tools")
    @classmethod
    def _can_be_shown(cls, tools: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        found = tuple(beside(tool, (info.context or {}).get(FOLDER)) for tool in tools)
        try:
            names = Counter(schema_of(FUNCTIONS.find(tool))["function"]["name"] for tool in found)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if twice := [name for name, number in names.items() if number > 1]:
            raise ValueError(f"tools has {twice[0]!r} twice; allowed are functions of different names")
        return found


class Tools(Calling):
    """The question of a problem, functions, and an answer that the verifier judges."""

    Config = ToolsConfig
    config: ToolsConfig

    def start(self, problem: Problem, seed: int) -> Opening:
        self._problem = problem
        functions = [FUNCTIONS.find(tool) for tool in self.config.tools]
        return self.begun(functions, problem.messages or [{"role": "user", "content": problem.question}])

    async def judged(self, text: str) -> Reply:
        assert self.config.verifier is not None, "the task of the problems has one"
        verifier = _verifier(self.config.verifier.model_dump_json())
        verdict = await asyncio.to_thread(verifier.verify, self._problem, text)
        if verdict.reward is None:
            raise VerifierError(f"the verifier failed: {verdict.evidence}")
        outcome: Decided = "correct" if verdict.outcome == "correct" else "wrong"
        return Reply(reward=verdict.reward, done=True, outcome=outcome, evidence=verdict.evidence)


@cache
def _verifier(section: str) -> Verifier:
    settings: dict[str, Any] = json.loads(section)
    return make_verifier(settings)
