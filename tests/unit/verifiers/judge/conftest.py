"""An endpoint on the loopback interface that answers as a test tells it to, truthfully or not."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from groupwise.types import Problem
from groupwise.verifiers.judge import JudgeVerifier

KEY = "sk-secret-0123456789"
Behaviour = Callable[["Exchange", int], None]


class Exchange(BaseHTTPRequestHandler):
    """One request; the behaviour under test answers it."""

    server: "Endpoint"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = self.server.enter(self.path, dict(self.headers), body)
        self.served = False
        try:
            self.server.behaviour(self, number)
        except OSError:
            pass  # the client has gone
        finally:
            self.leave()

    def leave(self) -> None:
        """Counts out once, and before the answer is sent: the client may ask again before this thread is back."""
        if not self.served:
            self.served = True
            self.server.leave()

    def say(self, content: Any, finish_reason: Any = "stop", **more: Any) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
        self.send({"choices": [choice], "usage": {"total_tokens": 100}} | more)

    def send(self, body: Any, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.leave()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(raw))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        pass


class Endpoint(ThreadingHTTPServer):
    """Records what it was asked and how many asked at one time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.behaviour: Behaviour = lambda exchange, _: exchange.say("It agrees.\nVERDICT: CORRECT")
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.most_at_once = self.at_once = 0
        self.over = threading.Event()  # set at the end: wait for it to be slow
        self._lock = threading.Lock()

    def enter(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> int:
        with self._lock:
            self.paths.append(path)
            self.headers.append(headers)
            self.bodies.append(body)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            return len(self.bodies)

    def leave(self) -> None:
        with self._lock:
            self.at_once -= 1

    def handle_error(self, *_: Any) -> None:
        pass  # clients that close early are what is tested

    @property
    def prompts(self) -> list[str]:
        return [body["messages"][0]["content"] for body in self.bodies]


@pytest.fixture
def start_endpoint() -> Iterator[Callable[[], Endpoint]]:
    started: list[Endpoint] = []

    def start() -> Endpoint:
        endpoint = Endpoint()
        threading.Thread(target=endpoint.serve_forever, args=(0.01,), daemon=True).start()
        started.append(endpoint)
        return endpoint

    yield start
    for endpoint in started:
        endpoint.over.set()
        endpoint.shutdown()
        endpoint.server_close()


@pytest.fixture
def endpoint(start_endpoint: Callable[[], Endpoint]) -> Endpoint:
    return start_endpoint()


@pytest.fixture
def make_judge(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JudgeVerifier]:
    """make_judge(judge settings) -> a verifier that asks the endpoint, and soon again."""
    monkeypatch.setattr("groupwise.verifiers.judge.endpoint.FIRST_BACKOFF_S", 0.01)

    def make(**settings: Any) -> JudgeVerifier:
        judge = {"url": endpoint.url, "model": "examiner"} | settings
        return JudgeVerifier(JudgeVerifier.Config.model_validate({"kind": "judge", "judge": judge}))

    return make


@pytest.fixture
def problem() -> Problem:
    return Problem("p-1", "What is the capital of France?", "Paris")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("EXAMINER_KEY", KEY)
    return KEY
