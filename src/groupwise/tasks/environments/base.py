"""The interface of environments: what answers a model turn by turn, and says what its turns are worth.

    class Guess(Environment):
        def start(self, problem, seed):
            self.secret = int(problem.reference)
            return Opening.of("A number below 8.")

        def step(self, turn):
            said = turn.text.strip()
            won = said == str(self.secret)
            return Reply.of("", reward=float(won), done=won, outcome="correct" if won else "")

An instance plays one episode, and is a *function of the problem, the seed and the turns so far*: it asks no clock, and
no random numbers but those of the seed. So it can be made again at any turn, in any process, and a run repeats, resumes
and replays. Instances live in worker processes and are only a cache. An environment sees texts, never token ids.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from groupwise.config import FOLDER
from groupwise.config.kinds import Kinds, KindSection
from groupwise.config.places import beside
from groupwise.types import Problem

Message = Mapping[str, Any]
"""A message of a conversation: `role` and `content`, and the `name` of the tool that says it."""
Decided = Literal["", "correct", "wrong"]
Status = Literal["ok", "bad_json", "unclosed", "no_name", "unknown_tool", "bad_argument", "forged"]
"""Status of a call: only one that is `ok` may be run; `forged` is a tool's result that the model wrote itself."""
CallFormat = Literal["auto", "hermes", "function_xml", "llama_json", "harmony", "none"]


Beside = Annotated[str, AfterValidator(lambda path, info: beside(path, (info.context or {}).get(FOLDER)))]
"""A file, or `file.py:name`, that is looked for beside the recipe first."""


class EnvironmentConfig(KindSection):
    """Settings of every environment; each kind adds its own."""

    max_turns: int = Field(16, ge=1)
    """Most turns of the model in an episode."""
    max_turn_tokens: int = Field(64, ge=1)
    """Most tokens of one turn, its stop token included; a turn without one ends the episode by `length`."""
    max_reply_tokens: int = Field(256, ge=1)
    """Most tokens of one reply, its template included; the text of a longer one is cut, and says so."""
    timeout_s: float = Field(30.0, gt=0, allow_inf_nan=False)
    """Seconds that a step may take, with all that it takes to make the instance again, before its process is killed."""
    num_workers: int = Field(2, ge=1)
    """Worker processes; each plays many episodes at a time."""
    repeatable: bool = True
    """True for a function of problem, seed and turns. `false` (a clock, a network) switches off the check of a few
    episodes at each step; a replay then needs the run's records."""
    seeds: Literal["group", "sample"] = "group"
    """Seeds of the episodes of a problem in a step: `group`: one, so that all meet the same cards, rows or moves and
    differ by what is said alone; `sample`: one each, where the opening does not depend on it."""
    calls: CallFormat = "auto"
    """Format in which the model calls tools: `hermes`, `function_xml`, `llama_json` or `harmony`; `auto`: what its chat
    template writes. Read only where the environment has tools; `none`: a turn is text."""
    past: Literal["refuse", "keep"] = "refuse"
    """Chat templates that write past turns otherwise than they were sampled (without their thinking, for example):
    `refuse` them, or `keep` every token as it was, which is a text that such a template never writes."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of an episode."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON schemas of the functions that a chat template shows."""

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(({"role": "user", "content": text},))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call of a tool in a turn, good or not."""

    status: Status
    begin: int
    end: int
    """Its span in the turn's text."""
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    evidence: str = ""
    """The fault, in words for the model."""

    @property
    def fault(self) -> str:
        """Return what answers a call that cannot be run."""
        return f"error: {self.status}: {self.evidence}"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model."""

    text: str
    """Without its thinking and its stop token."""
    attempts: tuple[Attempt, ...] = ()
    """Calls in their order, where the environment has tools."""

    @property
    def calls(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.status == "ok")


@dataclass(frozen=True, slots=True)
class Reply:
    """An environment's answer to a turn."""

    messages: tuple[Message, ...] = ()
    """Read next by the model; left out where the episode is done."""
    reward: float | None = None
    """Reward of the turn; None: none is given. An episode without any is not judged."""
    done: bool = False
    state: str = ""
    """Key of the state behind the turn: equal keys are equal situations; empty: unknown."""
    outcome: Decided = ""
    """Outcome of the episode, where it is decided here; else a positive sum of rewards is correct."""
    evidence: str = ""
    """The reason, in words a person can check."""
    ending: Literal["", "fault_limit", "malformed_call"] = ""
    """Name of the end, where it is none that the environment wanted."""

    @classmethod
    def of(cls, text: str, **more: Any) -> Self:
        return cls(({"role": "user", "content": text},), **more)


class Environment:
    """One episode. `start`, `step` and `ended` may be `async`; an exception in them is a fault of the environment."""

    Config: ClassVar[type[EnvironmentConfig]] = EnvironmentConfig
    alone: ClassVar[bool] = False
    """True where instances share something within their process: their steps are then run one after another (side by
    side where they are `async` and `repeatable = false`)."""
    answers_as: ClassVar[str] = "user"
    """Role of its replies, `user` or `tool`; whether they can be appended is checked before the first episode."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self.config = config

    def start(self, problem: Problem, seed: int) -> Any:
        """Begin; returns an `Opening`."""
        raise NotImplementedError

    def step(self, turn: Turn) -> Any:
        """Answer a turn; returns a `Reply`. Whatever the model wrote is data, and gets an answer."""
        raise NotImplementedError

    def ended(self, reason: str) -> Any:
        """Hear that a limit (`length`, `turn_limit`) ended the episode; a `Reply` says what that is worth."""
        return None

    def close(self) -> None:
        """Let go of what the instance holds."""

    @staticmethod
    def outside(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function as its author did, outside the loop that runs here: it may begin one (`asyncio.run`)."""
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return function(*arguments, **named)
        finally:
            asyncio._set_running_loop(loop)

    @classmethod
    def problems(cls, config: EnvironmentConfig) -> Iterator[Problem] | None:
        """Return problems without end, or all there are; None where data brings them."""
        return None

    def best(self) -> str | Turn | None:
        """Return what perfect play says now; None where it is not known."""
        return None

    def working(self) -> str:
        """Return what makes the move of perfect play easy to see, for scripts that think aloud; empty: nothing."""
        return ""

    def options(self) -> Sequence[str | Turn]:
        """Return what may be said now; empty: anything."""
        return ()


_HERE = "groupwise.tasks.environments"

ENVIRONMENTS = Kinds(
    "environment",
    {
        "guess": "worlds/games.py:Guess",
        "blackjack": "worlds/games.py:Blackjack",
        "database": "worlds/database.py:Database",
        "lights_out": "worlds/games.py:LightsOut",
        "nim": "worlds/games.py:Nim",
        "shell": "worlds/shell.py:Shell",
        "tic_tac_toe": "worlds/games.py:TicTacToe",
        "tools": f"{_HERE}.tools:Tools",
        "trl": f"{_HERE}.others:Trl",
        "message_env": "worlds/message_envs.py:MessageEnv",
        "openenv": f"{_HERE}.openenv:OpenEnv",
        "textarena": "worlds/text_games.py:TextArena",
        "verifiers": f"{_HERE}.verifiers_v1:Verifiers",
    },
)
