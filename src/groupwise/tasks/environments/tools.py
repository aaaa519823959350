"""Functions that the model calls in its own format, until it answers without a call.

A tool is a function with type hints and a docstring with `Args:`, `async` or not. Every attempt of a turn is answered,
in the order of the calls, a bad one by its fault. What a function raises is an answer, too; `GroupwiseError`,
`ConnectionError` and `MemoryError` are faults of the environment.
"""

import asyncio
import inspect
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from pydantic import Field, field_validator, model_validator

from groupwise.config.kinds import Allowed, Choices
from groupwise.errors import ConfigError, GroupwiseError, VerifierError
from groupwise.tasks.environments.base import Attempt, Beside, Environment, EnvironmentConfig, Opening, Reply, Turn
from groupwise.tasks.environments.mcp import PARTS, ServedTool, server, text_of
from groupwise.types import Problem
from groupwise.verifiers import Verifier, VerifierConfig, make_verifier
from groupwise.verifiers.table import VERIFIERS

Schema = Mapping[str, Any]

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_NAMES = {**_SCALARS, list: "array", tuple: "array", dict: "object"}
_TYPES = {name: kind for kind, name in _NAMES.items() if kind is not tuple} | {"number": int | float}
_PARTS = re.compile(r"(?m)^(Args|Returns|Raises):[ \t]*$")
_ARGUMENT = re.compile(r"(?ms)^([ \t]*)(\w+)(?: *\([^)]*\))?:[ \t]*(.*?)(?=^(?!\1[ \t])[ \t]*\w+(?: *\([^)]*\))?:|\Z)")
_CHOICES = re.compile(r"(?i)\s*\(choices:\s*(.*?)\)\s*$")


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a chat template shows of a function by hints and docstring (ConfigError: one of them lacks)."""
    name, doc = function.__name__, inspect.getdoc(function)
    if not doc:
        raise ConfigError(f"the tool {name} has no docstring, which the model would read")
    before, *sections = _PARTS.split(doc)
    texts = dict(zip(sections[::2], map(inspect.cleandoc, sections[1::2]), strict=True))
    told = {each[1]: " ".join(each[2].split()) for each in _ARGUMENT.findall(texts.get("Args", ""))}
    properties, required = dict[str, Any](), list[str]()
    try:
        hints = get_type_hints(function)
        enums = {n: {"enum": json.loads(found[1])} for n, text in told.items() if (found := _CHOICES.search(text))}
    except (NameError, ValueError) as error:
        raise ConfigError(f'a type hint, or (choices: ["a", "b"]), of the tool {name} is not read: {error}') from None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls") and parameter.annotation is parameter.empty:
            continue  # of a method
        what = f"the argument {parameter.name} of the tool {name}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"{what} cannot be given by its name; allowed are arguments that can")
        if parameter.name not in hints:
            raise ConfigError(f"{what} has no type hint")
        if parameter.name not in told:
            raise ConfigError(f"{what} has no line below `Args:` in the docstring")
        described = enums.get(parameter.name, {}) | {"description": _CHOICES.sub("", told[parameter.name])}
        properties[parameter.name] = _of_hint(hints[parameter.name], what) | described
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    shown: dict[str, Any] = {"name": name, "description": before.strip(), "parameters": parameters}
    with suppress(ConfigError, KeyError):  # the model never writes it
        shown["return"] = _of_hint(hints["return"], "")
        shown["return"] |= {"description": texts["Returns"]}
    return {"type": "function", "function": shown}


def _of_hint(hint: Any, what: str) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if (origin or hint) in _NAMES and ... not in parts:
        inner = [_of_hint(part, what) for part in (parts if origin is tuple else parts[-1:])]
        key = {dict: "additionalProperties", tuple: "prefixItems"}.get(origin, "items")
        within = {key: inner if origin is tuple else inner[0]} if inner else {}
        return {"type": _NAMES[origin or hint], **within}
    if isinstance(hint, type) and issubclass(hint, Enum):
        origin, parts = Literal, tuple(member.value for member in hint)
    if origin is Literal and parts and all(type(part) in _SCALARS for part in parts):
        names = list(dict.fromkeys(_SCALARS[type(part)] for part in parts))
        return {"type": names[0] if len(names) == 1 else names, "enum": list(parts)}
    if origin in (Union, types.UnionType):
        schemas = [_of_hint(part, what) for part in parts if part is not type(None)]
        if len(schemas) == 1:
            schema = schemas[0]
        elif all(each.keys() == {"type"} and isinstance(each["type"], str) for each in schemas):
            schema = {"type": names if len(names := sorted({each["type"] for each in schemas})) > 1 else names[0]}
        else:
            schema = {"anyOf": schemas}
        return schema | ({"nullable": True} if type(None) in parts else {})
    raise ConfigError(
        f"{what} has the type {hint!r}; allowed are int, float, str, bool, list[...], tuple[A, B], dict[str, ...], "
        "Literal, an Enum of such values, Any and unions of these"
    )


def fault_of(value: Any, schema: Any, what: str) -> str:
    """Return why a value does not fit a schema, empty where it does. Nothing is converted: "3" is no integer.

    What is no mapping (`true`, a list of schemas) and types of other names allow any value; their server decides.
    """
    if not isinstance(schema, Mapping) or (value is None and schema.get("nullable")):
        return ""
    shown = f"{what} = {json.dumps(value, ensure_ascii=False)[:80]}"
    if options := schema.get("anyOf"):
        return "" if any(not fault_of(value, each, what) for each in options) else f"{shown} fits none of its types"
    names = names_in(schema)
    if names and not any(isinstance(value, _TYPES[n]) for n in names if (n == "boolean") == isinstance(value, bool)):
        return f"{shown}: {' or '.join(names)} is needed"
    if "enum" in schema and value not in schema["enum"]:
        return f"{shown}: allowed are {', '.join(map(str, schema['enum']))}"
    if isinstance(value, list):
        kinds = [*schema.get("prefixItems", ()), *[schema.get("items", True)] * len(value)]
        faults = (fault_of(each, kinds[i], f"{what}[{i}]") for i, each in enumerate(value))
        return next(filter(None, faults), "")
    if not isinstance(value, dict):
        return ""
    if missing := [name for name in schema.get("required", ()) if name not in value]:
        return f"{what} without {', '.join(missing)}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
    for name, each in value.items():
        if name not in known and others is False:
            return f"{what} with {name!r:.80}; allowed are {', '.join(known) or 'none'}"
        inner = known.get(name, others if isinstance(others, Mapping) else {})
        if fault := fault_of(each, inner, f"{what}.{name}"):
            return fault
    return ""


def names_in(schema: Any) -> list[str]:
    """Return the names of the types that a schema allows; none: any type, as where one has another name."""
    given = (isinstance(schema, Mapping) and schema.get("type")) or []
    names = [given] if isinstance(given, str) else list(given)
    return names if _TYPES.keys() >= {*names} else []


MOST_CALLS = 8
"""Most calls of one turn; others are answered together, by one sentence."""
_ADDRESS = re.compile(r"^<.* at 0x[0-9a-fA-F]+>$", re.DOTALL)  # of an object that says nothing but where it lies
BROKEN = (GroupwiseError, ConnectionError, MemoryError)
"""Exceptions of a tool that are no answer: its environment has failed."""

Function = Callable[..., Any]
FUNCTIONS = Choices(
    "tool",
    {"calculator": "groupwise.rollout.tools.calculator:calculator", "python": "groupwise.rollout.tools.python:python"},
    allowed=Allowed(lambda it: hasattr(it, "__name__") and callable(it), "a function with type hints and a docstring"),
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
        shown = (each.shown if isinstance(each, ServedTool) else schema_of(each) for each in functions)
        return Opening(tuple(messages), tuple(shown))

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
                result = self.outside(function, **attempt.arguments)
            else:
                result = await asyncio.to_thread(function, **attempt.arguments)
        except BROKEN:
            raise
        except (Exception, SystemExit) as error:  # the model reads it
            return f"error: {type(error).__name__}: {error}"
        if isinstance(result, list) and result and all(isinstance(p, dict) and p.get("type") in PARTS for p in result):
            return text_of(result)
        if isinstance(result, bytes) or (not isinstance(result, str) and _ADDRESS.search(str(result))):
            raise VerifierError(
                f"the tool {attempt.name} returned {type(result).__name__}, which is no text; allowed are text, "
                "numbers, lists and mappings of these, and parts of a message"
            )
        return str(result)

    async def judged(self, text: str) -> Reply:
        """Judge the answer; it is the last reply."""
        raise NotImplementedError

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


def said(name: str, text: str) -> Mapping[str, Any]:
    """Return a tool's message."""
    return {"role": "tool", "name": name or "unknown", "content": text}


class ToolsConfig(CallingConfig):
    """Settings of tools."""

    tools: tuple[Beside, ...] = ()
    """Functions: `calculator`, `python` (in the sandbox), `file.py:function`. A program may ask for chance or a clock:
    beside `python`, `repeatable` is `false` unless it is given."""
    servers: tuple[str, ...] = ()
    """Commands that start servers of the Model Context Protocol on their standard input and output; all their tools are
    offered. One serves many episodes: where its answers depend on earlier calls, `repeatable = false`."""
    verifier: Annotated[VerifierConfig, VERIFIERS] | None = None
    """Judges the answer, which is the last turn without its thinking; None: that of the problems' task."""

    @model_validator(mode="before")
    @classmethod
    def _may_ask_a_clock(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        tools = given.get("tools")
        return {"repeatable": False, **given} if isinstance(tools, Sequence) and "python" in tools else given

    @field_validator("tools")
    @classmethod
    def _can_be_shown(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        try:
            names = Counter(schema_of(FUNCTIONS.find(tool))["function"]["name"] for tool in tools)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if twice := [name for name, number in names.items() if number > 1]:
            raise ValueError(f"tools has {twice[0]!r} twice; allowed are functions of different names")
        return tools

    @model_validator(mode="after")
    def _has_any(self) -> Self:
        if not self.tools and not self.servers:
            raise ValueError("tools and servers are empty; allowed is at least one tool, or a server that has some")
        return self


class Tools(Calling):
    """The question of a problem, functions, and an answer that the verifier judges."""

    Config = ToolsConfig
    config: ToolsConfig

    def start(self, problem: Problem, seed: int) -> Opening:
        self._problem = problem
        functions = [FUNCTIONS.find(tool) for tool in self.config.tools]
        functions += [tool for command in self.config.servers for tool in server(command).tools()]
        if twice := [name for name, count in Counter(each.__name__ for each in functions).items() if count > 1]:
            raise ConfigError(f"tools and servers have {twice[0]!r} twice; allowed are tools of different names")
        return self.begun(functions, problem.messages or [{"role": "user", "content": problem.question}])

    async def judged(self, text: str) -> Reply:
        assert self.config.verifier is not None, "the task of the problems has one"
        verifier = _verifier(self.config.verifier.model_dump_json())
        verdict = await asyncio.to_thread(verifier.verify, self._problem, text)
        if verdict.reward is None:
            raise VerifierError(f"the verifier failed: {verdict.evidence}")
        outcome: Literal["correct", "wrong"] = "correct" if verdict.outcome == "correct" else "wrong"
        return Reply(reward=verdict.reward, done=True, outcome=outcome, evidence=verdict.evidence)


@cache
def _verifier(section: str) -> Verifier:
    settings: dict[str, Any] = json.loads(section)
    return make_verifier(settings)
