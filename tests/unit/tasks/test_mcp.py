"""Tools of a server of the Model Context Protocol: one of a few lines, and one of the protocol's own library."""

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.errors import ConfigError
from groupwise.tasks.environments.base import Attempt, Turn
from groupwise.tasks.environments.mcp import Server, text_of
from groupwise.tasks.environments.tools import Tools, ToolsConfig
from groupwise.types import Problem

OURS = r"""
import json, sys, time

print("ready\n3", flush=True)  # not of the protocol
sys.stderr.write("about to serve\n")

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tool(name, *arguments):
    properties = {each: {"type": "integer"} for each in arguments}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties, "required": list(arguments)}}

def text(said, **more):
    return {"content": [{"type": "text", "text": said}, {"type": "image", "data": ""}], **more}

waiting = []
for line in sys.stdin:
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "initialize":
        send(id="of the server", method="ping")
        send(id=number, result={"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {}})
    elif method == "tools/list":
        page = {"tools": [tool("add", "a", "b"), tool("pair")], "nextCursor": "2"}
        send(id=number, result={"tools": [tool("die"), tool("odd")]} if "cursor" in params else page)
    elif method == "tools/call" and params["name"] == "add":
        send(id=number, result=text(str(params["arguments"]["a"] + params["arguments"]["b"])))
    elif method == "tools/call" and params["name"] == "pair":  # answers two at a time, the later one first
        waiting.append(number)
        if len(waiting) == 2:
            for place in (1, 0):
                send(id=waiting[place], result=text(f"number {place}", isError=place == 1))
    elif method == "tools/call" and params["name"] == "odd":
        send(id=number, error={"code": -32602, "message": "not today"})
    elif method == "tools/call":
        sys.stdin.close()  # nobody reads the answer
        send(id="of the server", method="ping")
        time.sleep(0.2)
        sys.exit(3)
"""
THEIRS = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


@server.tool()
def found(text: str) -> list[str]:
    "Find texts."
    return [text] if text else []


server.run("stdio")
"""


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "serve.py").write_text(OURS)
    return shlex.join([sys.executable, str(tmp_path / "serve.py")])


def replies(command: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    environment = Tools(ToolsConfig(kind="tools", servers=(command,), verifier={"kind": "math"}))
    opening = environment.start(Problem("p", "2 + 3?", "5"), 0)
    assert {"add", "die"} <= {shown["function"]["name"] for shown in opening.tools}
    attempts = tuple(Attempt("ok", 0, 0, name, arguments) for name, arguments in calls)
    return [message["content"] for message in asyncio.run(environment.step(Turn("", attempts))).messages]


def test_tools_are_offered_and_answer(command: str) -> None:
    assert replies(command, ("add", {"a": 2, "b": 3}), ("add", {"a": 4, "b": 5})) == ["5\n[image]", "9\n[image]"]


def test_calls_wait_for_their_own_answers(command: str) -> None:
    assert sorted(replies(command, ("pair", {}), ("pair", {}))) == ["error: number 1\n[image]", "number 0\n[image]"]


def test_a_call_that_is_refused_is_answered_and_an_end_is_a_fault(command: str) -> None:
    assert replies(command, ("odd", {})) == ["error: ValueError: tools/call is refused: not today"]
    with pytest.raises(ConnectionError, match="has ended with code 3: about to serve"):
        replies(command, ("die", {}))


def test_what_cannot_be_started_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the server of tools 'no-such-program x' cannot be started"):
        Server("no-such-program x")
    with pytest.raises(ConnectionError, match="has ended with code"):
        Server(shlex.join([sys.executable, "-c", "raise SystemExit(2)"]))
    with pytest.raises(ValidationError, match="tools and servers are empty"):
        ToolsConfig(kind="tools")


def test_two_tools_of_one_name_are_refused(command: str) -> None:
    environment = Tools(ToolsConfig(kind="tools", servers=(command, f"{command} "), verifier={"kind": "math"}))
    with pytest.raises(ConfigError, match="tools and servers have 'add' twice"):
        environment.start(Problem("p", "2 + 3?", "5"), 0)


def test_a_server_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(THEIRS)
    if subprocess.run([sys.executable, "-c", "import mcp.server.mcpserver"], capture_output=True).returncode:
        pytest.skip("the package mcp is not installed")
    tool, found = Server(shlex.join([sys.executable, str(tmp_path / "serve.py")])).tools()
    assert tool.shown["function"]["description"] == "Add two numbers."
    assert tool(a=2, b=3) == "5"
    assert tool(a="x", b=3).startswith("error: ")
    assert [found(text=text) for text in ("", "é", "\ud83d")] == ['{"result": []}', "é", "?"]


def test_an_embedded_text_is_read() -> None:
    held = {"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}}
    assert text_of([held, {"type": "resource", "resource": {"blob": ""}}]) == "hello\n[resource]"
