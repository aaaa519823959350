"""Runs in the worker process: a single-turn environment of the library `verifiers`.

A request names the environment. With `rows` the answer is its rows; with `completion` the values of its reward
functions, or `fault`: what went wrong; otherwise the environment is only loaded. The library is imported only here,
because it takes over the signals of the process that loads an environment.

The completion goes through the environment's own rollout, as the reply of a client that asks no model, and then to its
rubric. The rubric counts a reward function that raises as 0, so each is watched here.
"""

import asyncio
import contextlib
import functools
import importlib.util
import inspect
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from groupwise.config.kinds import Place
from groupwise.errors import ConfigError
from groupwise.verifiers._python import ADDED_LATER, drop_output

SETTLED = 1e-6
"""The weighted values may differ by at most this from the rubric's own sum, which adds them in another order."""


@dataclass(frozen=True)
class Loaded:
    """An environment whose reward functions are watched."""

    environment: Any
    loop: asyncio.AbstractEventLoop
    values: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, weight and value of every function that was called for the current completion."""
    faults: list[str] = field(default_factory=list)
    """What the functions did wrong for it."""


def warm_up() -> None:
    """Import the library once, for all workers."""
    with contextlib.suppress(Exception):  # the worker that loads an environment reports it by name
        from verifiers import SingleTurnEnv  # noqa: F401


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """Load the environment; list its rows, or score a completion.

    Raises:
        ConfigError: it cannot be loaded, or needs more than one answer from a model.
    """
    loaded = _load(request["environment"], request["arguments"])
    if request.get("rows"):
        return {part: list(_rows(part, loaded.environment)) for part in ("train", "test")}
    if "completion" not in request:
        return {}
    worker = os.getpid()
    try:
        return _score(loaded, request)
    finally:
        if os.getpid() != worker:  # a function forked, and this is the child: nobody waits for its answer
            os._exit(0)


@functools.cache
def _load(name: str, arguments: str) -> Loaded:
    if importlib.util.find_spec("verifiers") is None:
        raise ConfigError("the task verifiers needs a library: pip install 'groupwise[verifiers]'")
    try:
        from verifiers import JudgeRubric, SingleTurnEnv, load_environment
    except ImportError as error:
        raise ConfigError(f"the library verifiers differs from its versions 0.1.12 to 0.3: {error}") from None
    place = Place.of(name) or (Place.importable(name) if ":" in name else None)
    make = place.load() if place else functools.partial(load_environment, name)
    try:
        environment = make(**json.loads(arguments))
    except (Exception, SystemExit) as error:
        raise ConfigError(f"the environment {name} cannot be loaded: {type(error).__name__}: {error}") from None
    if not isinstance(environment, SingleTurnEnv):
        raise ConfigError(f"the environment {name} is a {type(environment).__name__}; only a SingleTurnEnv is allowed")
    if getattr(environment, "tool_defs", None):
        raise ConfigError(f"the environment {name} has tools; only one without tools is allowed")
    loaded = Loaded(environment, asyncio.new_event_loop())
    rubrics = list(_rubrics(environment.rubric))
    for rubric in rubrics:
        for function in rubric.funcs:
            subject = f"the environment {name} has the reward function {_name_of(function)!r}, which"
            if isinstance(rubric, JudgeRubric) or {"judge", "judge_client"} & set(
                inspect.signature(function).parameters
            ):
                raise ConfigError(f"{subject} asks a judge model; only functions that need no client are allowed")
            if rubric._is_group_func(function):
                raise ConfigError(f"{subject} compares completions; only functions of one completion are allowed")
            if not _name_of(function).isidentifier() or _name_of(function) in ADDED_LATER:
                raise ConfigError(
                    f"{subject} cannot name a part: a name has letters, digits and _, and is not cap or kl"
                )
        rubric.funcs[:] = [_watch(*pair, loaded) for pair in zip(rubric.funcs, rubric.weights, strict=True)]
    if not any(weight for rubric in rubrics for weight in rubric.weights):
        raise ConfigError(f"the rubric of the environment {name} has no reward function with a weight")
    return loaded


def _rubrics(rubric: Any) -> Iterator[Any]:
    """A rubric and those that it adds up."""
    yield rubric
    for member in getattr(rubric, "rubrics", ()):
        yield from _rubrics(member)


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _watch(function: Callable[..., Any], weight: float, loaded: Loaded) -> Callable[..., Any]:
    """Wrap a function so that what it returns or raises is recorded; its signature stays the same."""

    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> float:
        verb = "raised"
        try:
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            verb = "returned"
            if not hasattr(value, "__float__") or not math.isfinite(float(value)):
                raise ValueError(f"{value!r:.100} (a {type(value).__name__}); only a finite number is allowed")
        except BaseException as error:  # exit() too, and what the library would count as a reward of 0
            detail = str(error) if verb == "returned" else f"{type(error).__name__}: {error}"
            loaded.faults.append(f"{_name_of(function)} {verb} {detail}"[:400])
            raise RuntimeError(loaded.faults[-1]) from error
        loaded.values.append((_name_of(function), float(weight), float(value)))
        return float(value)

    return call


def _rows(part: str, environment: Any) -> Iterator[dict[str, Any]]:
    """What each problem is made of, row by row."""
    for index, row in enumerate(_dataset(part, environment)):
        try:
            messages = _messages(row["prompt"])
        except ValueError as error:
            raise ConfigError(f"row {index} of the environment's {part} data {error}") from None
        if any(_info(row).get(key) for key in ("tool_defs", "oai_tools")):
            raise ConfigError(
                f"row {index} of the environment's {part} data has tools; only rows without tools are allowed"
            )
        answer = row.get("answer")
        yield {"messages": messages, "answer": "" if answer is None else str(answer), "fields": _fields(row)}


def _dataset(part: str, environment: Any) -> Any:
    """The rows of a part; none if the environment has no such data."""
    name = "dataset" if part == "train" else "eval_dataset"
    if getattr(environment, name, None) is None and getattr(environment, f"{name}_source", None) is None:
        return ()
    return environment.get_dataset() if part == "train" else environment.get_eval_dataset()


def _info(row: Mapping[str, Any]) -> Mapping[str, Any]:
    info = row.get("info") or {}
    return json.loads(info) if isinstance(info, str) else info


def _messages(prompt: Any) -> list[dict[str, str]]:
    """The messages with their text.

    Raises:
        ValueError: says what they are instead of text.
    """
    if isinstance(prompt, str):
        raise ValueError("has a prompt that is plain text; only a list of messages is allowed")
    messages = [{"role": message["role"], "content": _text(message)} for message in prompt]
    if [message["role"] for message in messages][-1:] != ["user"]:
        raise ValueError("has a prompt that does not end with a message of the role 'user'")
    return messages


def _text(message: Mapping[str, Any]) -> str:
    if message["role"] not in ("system", "user", "assistant") or message.get("tool_calls"):
        raise ValueError(
            f"has a message of the role {message['role']!r} or with tool calls; only text of system, user and "
            "assistant is allowed"
        )
    content = message["content"]
    pieces = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for piece in pieces:
        if piece.get("type") != "text":
            raise ValueError(f"has a message with content of the type {piece.get('type')!r}; only 'text' is allowed")
    return " ".join(piece["text"] for piece in pieces)


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that JSON can hold, for a user's own reward."""
    fields = {}
    for name in row.keys() - {"prompt"}:
        with contextlib.suppress(TypeError, ValueError):
            fields[name] = json.loads(json.dumps(row[name], allow_nan=False))
    return fields


def _score(loaded: Loaded, request: Mapping[str, Any]) -> dict[str, Any]:
    drop_output()
    loaded.values.clear()
    loaded.faults.clear()
    row = _dataset(request["part"], loaded.environment)[request["row"]]
    if _messages(row["prompt"]) != request["messages"]:
        return {"fault": "has other rows each time it is loaded; fix its seed in task.arguments"}
    try:
        state = loaded.loop.run_until_complete(_run_rollout(loaded.environment, row, request))
    except BaseException as error:  # exit() too
        loaded.faults.append(f"raised {type(error).__name__}: {error}"[:400])
    if loaded.faults:
        return {"fault": loaded.faults[0]}
    parts: dict[str, float] = {}
    measures: dict[str, float] = {}
    for name, weight, value in loaded.values:
        totals = parts if weight else measures
        totals[name] = totals.get(name, 0.0) + (weight * value if weight else value)
    reward = float(state["reward"])
    if abs(sum(parts.values()) - reward) > SETTLED:  # the rubric combines its functions in its own way
        parts = {"reward": reward}
    return {"parts": parts, "measures": measures} if math.isfinite(reward) else {"fault": f"returned {reward}"}


async def _run_rollout(environment: Any, row: Mapping[str, Any], request: Mapping[str, Any]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = await environment.rollout(row, _client(request), "groupwise", {})
    if state.get("error") is not None:
        raise RuntimeError(f"the rollout: {state['error']!r}")
    await environment.rubric.score_group([state])
    await environment.rubric.cleanup(state)
    return state


def _client(request: Mapping[str, Any]) -> Any:
    """A client that answers with the completion."""
    from verifiers import Client
    from verifiers.types import Response, ResponseMessage

    async def get_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        message = ResponseMessage(
            role="assistant", content=request["completion"], is_truncated=request["truncated"],
            finish_reason="length" if request["truncated"] else "stop",
        )  # fmt: skip
        return Response(id="groupwise", created=int(time.time()), model="groupwise", message=message)

    stubs = dict.fromkeys(Client.__abstractmethods__)
    return type("Scripted", (Client,), {**stubs, "get_response": get_response})(None)
