"""Environments behind a server of OpenEnv: its JSON over a WebSocket, a session for each episode.

The action is made as its schema says. One required field: it is the turn's text, or the JSON value that the turn is.
More, or tools (MCP): the model calls them in its own format. A server that has no room for another session is shared:
a session is closed, and when it is needed again it is made anew from its seed and its actions.
"""

import contextlib
import ctypes
import json
import operator
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.request import urlopen

from pydantic import Field, ValidationInfo, field_validator, model_validator

from groupwise.config import FOLDER
from groupwise.config.places import beside
from groupwise.errors import VerifierError
from groupwise.randomness import key
from groupwise.sandbox.fork_server import last_words
from groupwise.tasks.environments.base import Attempt, Opening, Reply, Turn
from groupwise.tasks.environments.mcp import text_of
from groupwise.tasks.environments.others import Others, needs
from groupwise.tasks.environments.tools import MOST_CALLS, Calling, CallingConfig, fault_of, said
from groupwise.types import Problem

_MCP = {"Action", "CallToolAction", "ListToolsAction"}
"""Titles of an action that only says which tool is called."""
_ROOM_S = 15.0
"""Seconds that a server may take to let go of a session that was closed."""
_OUTSIDE = ("done", "reward", "metadata")
_TYPE = re.compile(r'"type": "(\w+)"')
_NUMBER = re.compile(r"(?:integer|number|boolean|null)(?: (?:integer|number|boolean|null))*")
"""Types of a field of an observation that says no words."""


class OpenEnvConfig(CallingConfig):
    """Settings of a server of OpenEnv."""

    url: str = ""
    """Address of a server that runs, for example `http://127.0.0.1:8000`."""
    command: str = ""
    """Command that starts one, with `{port}` in it; `python` is the one that runs groupwise."""
    folder: str = "."
    """Folder in which the command runs, beside the recipe."""
    text: str = ""
    """Part of an observation that the model reads: a field, or fields in a text, `{board} {hint}`; empty: its field of
    text where all others are numbers, else all of it as JSON."""
    num_workers: int = Field(1, ge=1)
    """Worker processes, each with a server of its own where `command` starts it."""
    timeout_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds that a step may take, the start of the server included, before its process is killed."""

    @field_validator("folder")
    @classmethod
    def _beside_the_recipe(cls, folder: str, info: ValidationInfo) -> str:
        recipe = (info.context or {}).get(FOLDER)
        return str(recipe or ".") if folder == "." else beside(folder, recipe)

    @model_validator(mode="after")
    def _has_a_server(self) -> "OpenEnvConfig":
        needs("websockets", "openenv")
        if bool(self.url) == bool(self.command):
            raise ValueError("url and command: allowed is one of them")
        if self.command and "{port}" not in self.command:
            raise ValueError(f"command = {self.command!r} has no {{port}}, at which the server would be asked")
        return self


class _Server:
    def __init__(self, url: str, command: str, folder: str) -> None:
        self.url, self.sessions = url.rstrip("/"), list[OpenEnv]()
        self.is_full, self.making_room = False, threading.Lock()
        if command:
            self._start(command, folder)
        try:
            schemas = self._get("/schema")
        except OSError as error:
            raise VerifierError(f"no server of OpenEnv answers at {self.url}: {error}") from error
        self.action, self.observation = (_whole(schemas[part], schemas[part]) for part in ("action", "observation"))
        fields = {name: each for name, each in self.action.get("properties", {}).items() if name != "metadata"}
        self.asked = [name for name in self.action.get("required", ()) if name in fields] or list(fields)
        self.is_mcp = self.action.get("title") in _MCP
        self.field = self.asked[0] if len(self.asked) == 1 and not self.is_mcp else ""
        seen = {n: each for n, each in self.observation.get("properties", {}).items() if n not in _OUTSIDE}
        words = [n for n, each in seen.items() if not _NUMBER.fullmatch(" ".join(re.findall(_TYPE, json.dumps(each))))]
        self.text = words[0] if len(words) == 1 and seen[words[0]].get("type") == "string" else ""

    def _start(self, command: str, folder: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        words = [word.replace("{port}", str(port)) for word in shlex.split(command)]
        words[0] = sys.executable if words[0] == "python" else words[0]
        output = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=subprocess.STDOUT, preexec_fn=ends_with_me)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                self._get("/health")
                return
            time.sleep(0.1)
        raise VerifierError(f"{command!r} ended with {process.returncode}: {last_words(output, 300)}")

    def _get(self, path: str) -> Any:
        with urlopen(self.url + path) as answer:
            return json.load(answer)


_server = cache(_Server)
_STARTING = threading.Lock()
_worth = operator.itemgetter("reward", "done")


def ends_with_me() -> None:
    """Let this process end when the one that started it is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG


def _whole(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a schema without references."""
    if isinstance(schema, list):
        return [_whole(each, root) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "$ref" in schema:
        return _whole(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    return {name: _whole(each, root) for name, each in schema.items() if name != "$defs"}


class _RefusedError(Exception):
    """The server finds an action malformed; says why."""


class OpenEnv(Calling):
    """One session."""

    Config = OpenEnvConfig
    config: OpenEnvConfig
    answers_as = "user"
    _server: Any = None
    _socket: Any = None

    problems = Others.problems

    def start(self, problem: Problem, seed: int) -> Opening:
        self._faults, self._rewarded, self._lock = 0, False, threading.Lock()
        self._sent = list[tuple[dict[str, Any], Any]]()
        with _STARTING:
            self._server = _server(self.config.url, self.config.command, self.config.folder)
        row = {name: value for name, value in problem.data.items() if name != "tools" or value}
        seeded = {"seed": key("openenv", seed, problem.id) % 2**31, **row}
        if (first := self._tell({"type": "reset", "data": seeded})).get("done"):
            raise VerifierError(f"it is done at its reset, before any action: {str(first['observation'])[:200]}")
        text = self._shown(first)
        if not (question := "\n".join(filter(None, (problem.question, text)))):
            raise VerifierError("its first observation has no text; allowed is task.problems, whose questions begin it")
        tools = () if self._server.field else tuple(self._tools())
        if tools and self.config.calls == "none":
            raise VerifierError(
                f"its action has more than a text can say ({', '.join(self._server.asked)}); "
                "allowed are task.environment.calls for a model that calls tools"
            )
        self._names = [tool["function"]["name"] for tool in tools]
        return Opening(Opening.of(question).messages, tools)

    def _tools(self) -> Iterator[dict[str, Any]]:
        found = [{"name": "act", **self._server.action, "inputSchema": self._server.action}]
        if self._server.is_mcp:
            request = {"jsonrpc": "2.0", "method": "tools/list", "params": {}, "id": 1}
            found = self._tell({"type": "mcp", "data": request})["result"]["tools"]
        for tool in found:
            schema = dict(tool.get("inputSchema") or tool.get("input_schema") or {"properties": {}})
            schema["properties"] = {n: each for n, each in schema["properties"].items() if n != "metadata"}
            parameters = {name: each for name, each in schema.items() if name not in ("title", "description")}
            shown = {"name": tool["name"], "description": tool.get("description") or "", "parameters": parameters}
            yield {"type": "function", "function": shown}

    def step(self, turn: Turn) -> Reply:  # type: ignore[override]  # may be either
        if self._server.field:
            text = turn.text.strip()
            field, schema = self._server.field, self._server.action["properties"][self._server.field]
            value: Any = text
            if schema.get("type") != "string":
                with contextlib.suppress(ValueError):
                    value = json.loads(text)
            fault = fault_of(value, schema, field) and fault_of(value := text, schema, field)
            turn = Turn(turn.text, (Attempt("bad_argument" if fault else "ok", 0, 0, "act", {field: value}, fault),))
        elif not turn.attempts and self._rewarded:
            return Reply(done=True)
        elif not turn.attempts:
            turn = Turn(turn.text, (Attempt("no_name", 0, 0, evidence=f"call one of {', '.join(self._names)}"),))
        if over := self.over(turn):
            return over
        if turn.attempts[0].status == "no_name" and not turn.calls:
            return Reply.of(turn.attempts[0].fault)
        texts, rewards, done = list[str](), list[float](), False
        for attempt in turn.attempts[:MOST_CALLS]:
            try:
                texts.append(attempt.fault)
                if attempt.status != "ok" or done:
                    continue
                call = {"type": "call_tool", "tool_name": attempt.name, "arguments": attempt.arguments}
                answer = self._tell({"type": "step", "data": call if self._server.is_mcp else attempt.arguments})
                texts[-1], done = self._shown(answer), bool(answer["done"])
                rewards += [] if answer["reward"] is None else [float(answer["reward"])]
            except _RefusedError as error:
                texts[-1] = f"error: bad_argument: {error}"
        self._rewarded |= bool(rewards)
        reward = sum(rewards) if rewards else None
        if done:
            return Reply(reward=reward, done=True, evidence=texts[-1][:200])
        if self._server.field:
            return Reply.of(texts[0], reward=reward)
        return Reply(tuple(said(a.name, text) for a, text in zip(turn.attempts, texts, strict=False)), reward=reward)

    def _shown(self, answer: Mapping[str, Any]) -> str:
        seen = {name: each for name, each in answer["observation"].items() if name not in _OUTSIDE}
        if (error := seen.get("error")) and self._server.is_mcp:
            return f"error: {error.get('message', error)}"
        if isinstance(result := seen.get("result"), Mapping) and self._server.is_mcp:
            parts = result.get("content")
            return text_of(parts) if parts else json.dumps(result.get("data", result), sort_keys=True)
        if wanted := self.config.text or ("" if self._server.is_mcp else self._server.text):
            try:
                return wanted.format_map(seen) if "{" in wanted else str(seen[wanted])
            except (LookupError, ValueError, AttributeError, TypeError) as error:
                raise VerifierError(f"text = {wanted!r}: {error!r}; allowed are fields: {', '.join(seen)}") from None
        shown = seen or answer["observation"].get("metadata") or {}
        if len(texts := list(shown.values())) < 2 and all(isinstance(text, str) for text in texts):
            return "".join(texts)
        return json.dumps(shown, ensure_ascii=False, sort_keys=True)

    def _tell(self, message: dict[str, Any]) -> Any:
        """Send a message and return what answers it; where the session was closed it is made anew first."""
        from websockets.exceptions import ConnectionClosed

        with self._lock:
            try:
                answer = self._asked(message)
            except ConnectionClosed:
                self._socket = None
                answer = self._asked(message)
            if answer["type"] == "error" and answer["data"].get("code") == "VALIDATION_ERROR":
                raise _RefusedError(json.dumps(answer["data"].get("errors", answer["data"]["message"]))[:300])
            if answer["type"] == "error":
                raise VerifierError(f"{answer['data'].get('code')}: {answer['data'].get('message')}")
            self._sent.append((message, answer["data"]))
            return answer["data"]

    def _asked(self, message: dict[str, Any]) -> Any:
        if self._socket is not None:
            return self._exchanged(message)
        if self._sent and not self.config.repeatable:
            raise VerifierError("its session was closed, and with repeatable = false it cannot be made anew")
        for before, known in self._sent:
            again = self._opened(before) if self._socket is None else self._exchanged(before)
            if again["type"] == "error" or (before["type"] == "step" and _worth(again["data"]) != _worth(known)):
                raise VerifierError(f"the same actions with the same seed give {again['data']} and gave {known} before")
        return self._exchanged(message) if self._socket is not None else self._opened(message)

    def _opened(self, message: dict[str, Any]) -> Any:
        """Open the session with its first message, in the place of another where there is no room."""
        server = self._server
        if not server.is_full and (answer := self._joined(message)):
            return answer
        server.is_full = True
        with server.making_room:
            deadline = time.monotonic() + _ROOM_S
            while not (answer := self._joined(message)):
                if time.monotonic() > deadline:
                    raise VerifierError(
                        "the server has no room for another session; allowed is room for as many as there are "
                        "episodes (its max_concurrent_envs), or repeatable = true and a server of its own"
                    )
                for other in list(server.sessions) if self.config.repeatable else ():
                    if other._lock.acquire(blocking=False):
                        other._shut()
                        other._lock.release()
                        deadline = time.monotonic() + _ROOM_S
                        break
                time.sleep(0.02)
            return answer

    def _joined(self, message: dict[str, Any]) -> Any:
        """Connect, and say the first message; returns None where there is no room."""
        from websockets.sync.client import connect

        address = self._server.url.replace("http", "ws", 1) + "/ws"
        self._socket = connect(address, max_size=None, proxy=None if self.config.command else True)
        answer = self._exchanged(message)
        if answer["type"] == "error" and answer["data"].get("code") == "CAPACITY_REACHED":
            self._shut()
            return None
        self._server.sessions.append(self)
        return answer

    def _exchanged(self, message: dict[str, Any]) -> Any:
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):  # what it said last, that it has no room, is read below
            self._socket.send(json.dumps(message))
        return json.loads(self._socket.recv())

    def ended(self, reason: str) -> Reply | None:  # type: ignore[override]
        return None if self._rewarded else super().ended(reason)

    def _shut(self) -> None:
        if self._server and self in self._server.sessions:
            self._server.sessions.remove(self)
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    close = _shut
