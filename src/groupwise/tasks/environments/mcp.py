"""Tools of servers of the Model Context Protocol (2025-06-18), spoken to by lines of JSON-RPC on their standard input.

The four messages that tools need are here, rather than in the protocol's own library with its thirty packages. A server
serves all episodes of a worker process, many calls at a time, and ends with its standard input.
"""

import itertools
import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from threading import Lock, Thread
from typing import IO, Any

from groupwise.errors import ConfigError
from groupwise.sandbox.fork_server import last_words

PARTS = frozenset(["text", "image", "image_url", "audio", "input_audio", "video", "resource", "resource_link"])
"""Types of parts of a result, as the protocol and OpenAI's messages have them."""


def text_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a result's parts, embedded files' included; a picture or a sound is named in its place."""
    held = ((part.get("type"), part.get("resource") or part) for part in parts)
    return "\n".join(str(each["text"]) if "text" in each else f"[{kind}]" for kind, each in held)


@dataclass(frozen=True)
class ServedTool:
    """A tool of a server, to be called with arguments by name."""

    server: "Server"
    shown: Mapping[str, Any]
    """Schema of the function, as a chat template shows it."""

    @property
    def __name__(self) -> str:
        return str(self.shown["function"]["name"])

    def __call__(self, **arguments: Any) -> str:
        """Return the text of the result. Raises ConnectionError: the server has ended. ValueError: it refuses."""
        result = self.server.ask("tools/call", name=self.__name__, arguments=arguments)
        parts = result.get("content", [])
        said = text_of(parts)
        if not parts and "structuredContent" in result:  # of an empty list, for example, a server has no other words
            said = json.dumps(result["structuredContent"], ensure_ascii=False)
        return ("error: " if result.get("isError") else "") + said


class Server:
    """A process that a command started."""

    def __init__(self, command: str) -> None:
        self._command, self._ids, self._lock = command, itertools.count(), Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._last_words: Future[str] = Future()
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._process = subprocess.Popen(
                shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        except (OSError, ValueError) as error:
            errors.close()
            raise ConfigError(f"the server of tools {command!r} cannot be started: {error}") from error
        Thread(target=self._listen, args=(errors,), daemon=True).start()
        about = {"name": "groupwise", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        self._send(method="notifications/initialized")

    def tools(self) -> list[ServedTool]:
        """Return all that it offers, page by page."""
        tools, page = list[ServedTool](), dict[str, Any]()
        while True:
            found = self.ask("tools/list", **page)
            for tool in found["tools"]:
                about = {"name": tool["name"], "description": tool.get("description", "")}
                shown = {"type": "function", "function": about | {"parameters": tool["inputSchema"]}}
                tools.append(ServedTool(self, shown))
            if not found.get("nextCursor"):
                return tools
            page = {"cursor": found["nextCursor"]}

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request. Raises ConnectionError: the server has ended. ValueError: it refuses."""
        answer: Future[Any] = Future()
        number = next(self._ids)
        self._waiting[number] = answer
        self._send(id=number, method=method, params=params)
        message = answer.result()
        if "error" in message:
            raise ValueError(f"{method} is refused: {message['error'].get('message', message['error'])}")
        return message["result"]

    def _send(self, **message: Any) -> None:
        try:
            self._write(message)
        except (OSError, ValueError) as error:  # ValueError: it was closed here
            raise ConnectionError(self._last_words.result()) from error

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with self._lock:
            line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
            self._process.stdin.write(line.encode(errors="replace") + b"\n")  # half a character would get no answer
            self._process.stdin.flush()

    def _listen(self, errors: IO[bytes]) -> None:
        assert self._process.stdout is not None and self._process.stdin is not None
        for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a print among the messages
            if not isinstance(message, dict):
                continue
            if "method" in message and "id" in message:  # a client offers nothing but that it is there
                there = message["method"] == "ping"
                answer = {"result": {}} if there else {"error": {"code": -32601, "message": "not offered"}}
                with suppress(OSError):  # where it has ended, its output ends, too
                    self._write({"id": message["id"], **answer})
            elif waiting := self._waiting.pop(message.get("id", -1), None):
                waiting.set_result(message)
        code = self._process.wait()
        words = last_words(errors, 300) or "it said nothing"
        self._last_words.set_result(f"the server of tools {self._command!r} has ended with code {code}: {words}")
        for stream in (errors, self._process.stdout, self._process.stdin):
            with suppress(BrokenPipeError):
                stream.close()
        while self._waiting:
            self._waiting.popitem()[1].set_exception(ConnectionError(self._last_words.result()))


server = cache(Server)
"""The server of a command; one in each process."""
