"""Tier `remote` against an executor on the loopback interface, honest or broken."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.errors import SandboxError
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig, Status
from groupwise.sandbox.opening import RemoteSandbox, open_sandbox

Answer = Callable[[Any], bytes]
PAIR = (Program("import sys\nprint(1, flush=True)\nsys.stderr.write(input())"), Program("print(input() * 3)"))


@pytest.fixture
def serve(endpoint: Any) -> Callable[[Answer], str]:
    """serve(answer) -> the address of an executor that answers a request so."""

    def start(answer: Answer) -> str:
        endpoint.behaviour = lambda exchange, number: exchange.send(answer(endpoint.bodies[number - 1]))
        return str(endpoint.url)

    return start


def executor(sandbox: Sandbox) -> Answer:
    """An honest executor: the documented protocol over a local sandbox."""

    def program(data: Any) -> Program:
        files = {name: base64.b64decode(content) for name, content in data["files"].items()}
        return Program(data["source"], tuple(data["command"]), base64.b64decode(data["stdin"]), files, data["wall_s"])

    def result(found: RunResult) -> dict[str, Any]:
        return {
            "status": found.status, "exit_code": found.exit_code, "seconds": found.seconds, "evidence": found.evidence,
            "stdout": base64.b64encode(found.stdout).decode(), "stderr": base64.b64encode(found.stderr).decode(),
        }  # fmt: skip

    def answer(body: Any) -> bytes:
        runs = [[program(data) for data in run] for run in body["runs"]]
        found = sandbox.run_all(runs)
        return json.dumps({"results": [[result(each) for each in run] for run in found]}).encode()

    return answer


def test_an_honest_executor(sandbox: Sandbox, serve: Callable[[Answer], str]) -> None:
    with open_sandbox(SandboxConfig(tier="remote", url=serve(executor(sandbox)))) as remote:
        assert remote.run(Program("print(open('a').read())", files={"a": b"\xc3\xa9"})).stdout == b"\xc3\xa9\n"
        assert remote.run_all([PAIR])[0][0].stderr == b"111"
        assert remote.run(Program("import os; os.abort()")).exit_code == -6


def result(**changes: Any) -> bytes:
    """A reply with one result."""
    fields = {"status": "exited", "exit_code": 0, "stdout": "", "stderr": "", "seconds": 0, "evidence": ""} | changes
    return json.dumps({"results": [[fields]]}).encode()


def test_the_smallest_reply(serve: Callable[[Answer], str]) -> None:
    remote = RemoteSandbox(SandboxConfig(tier="remote", url=serve(lambda body: result())))
    assert remote.run(Program("")) == RunResult(Status.EXITED, 0, b"", b"", 0.0)


@pytest.mark.parametrize(
    "reply",
    [b"", b"nonsense", b"[]", b"{}", b'{"results": []}', b'{"results": [[]]}', b'{"results": [[{"status": "exited"}]]}',
     b"[" * 100_000,
     result(status="fine"), result(stdout="?"), result(exit_code="x"), result(seconds=None)],
)  # fmt: skip
def test_a_broken_executor_is_no_finding(serve: Callable[[Answer], str], reply: bytes) -> None:
    remote = RemoteSandbox(SandboxConfig(tier="remote", url=serve(lambda body: reply)))
    assert remote.run(Program("print(1)")).status is Status.FAILED
    assert [found.status for found in remote.run_all([PAIR])[0]] == [Status.FAILED] * 2


def test_an_executor_that_drips_does_not_hold_a_run(endpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(exchange: Any, _: int) -> None:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not exchange.server.over.wait(0.02):
            exchange.wfile.write(b" ")

    endpoint.behaviour = drip
    monkeypatch.setattr("groupwise.sandbox.opening._SPARE_S", 0.1)
    found = RemoteSandbox(SandboxConfig(tier="remote", url=endpoint.url, wall_s=0.1)).run(Program("1"))
    assert (found.status, "TimeoutError" in found.evidence) == (Status.FAILED, True)


def test_an_address_is_asked_as_it_is_written(endpoint: Any) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.send(b"no", 302, Location=f"{endpoint.url}/elsewhere")
    found = RemoteSandbox(SandboxConfig(tier="remote", url=f"{endpoint.url}/run?key=1")).run(Program("1"))
    assert "status 302" in found.evidence
    assert endpoint.paths == ["/v1/run?key=1"]


def test_an_executor_that_is_not_there() -> None:
    with pytest.raises(SandboxError, match=r"new processes: failed .*refused"):
        open_sandbox(SandboxConfig(tier="remote", url="http://127.0.0.1:9/"))
