"""A small run directory, written by the real writers; sandboxes; an endpoint; and this process as a rank."""

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.runs.directory import RunDirectory, open_run
from groupwise.runs.rollouts import write_rollouts
from groupwise.sandbox.base import Program, RunResult, Sandbox, SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict

CONFIG = """algorithm = "grpo"
[run]
num_steps = 4
[model]
path = "base"
[task]
kind = "<arithmetic>"
"""

Sample = tuple[str, Outcome]


def scored(problem: str, samples: Sequence[Sample], step: int = 0) -> ScoredGroup:
    """A group of completions; each has as many tokens as characters."""
    prompt = Prompt(Problem(problem, f"What is {problem}?", "42", "easy"), f"What is {problem}?\n", (1,))
    completions = tuple(_completion(index, text) for index, (text, _) in enumerate(samples))
    verdicts = tuple(Verdict(outcome, {}, f"evidence of {outcome}") for _, outcome in samples)
    return ScoredGroup(Group(prompt, completions, step, 0), verdicts)


def _completion(index: int, text: str) -> Completion:
    zeros = np.zeros(len(text), np.float32)
    reason = FinishReason.STOP if "</think>" in text else FinishReason.LENGTH
    return Completion(index, np.zeros(len(text), np.int64), zeros, zeros, reason, text)


def step_line(step: int, **changed: Any) -> dict[str, Any]:
    """A step's line in metrics.jsonl."""
    line = {
        "kind": "step", "step": step, "reward": 0.25 * step, "signal": 0.5, "entropy": 0.4, "length": 20.0,
        "length_correct": None if step == 0 else 30.0, "length_wrong": 10.0, "verdict_errors": 1,
        "tokens_per_second": 100.0, "sampled_tokens": 1000, "generate_s": 6.0, "verify_s": 1.0, "train_s": 3.0,
    }  # fmt: skip
    return {**line, **changed}


class FakeRun:
    """Writes what a run writes."""

    def __init__(self, path: Path) -> None:
        self.directory: RunDirectory = open_run(path, CONFIG)[0]
        self.path = path

    def steps(self, *steps: int) -> "FakeRun":
        for step in steps:
            self.directory.metrics.append(step_line(step))
        return self

    def evaluation(self, kind: str, step: int, groups: Sequence[ScoredGroup], **more: Any) -> "FakeRun":
        write_rollouts(self.directory.rollouts(f"dev-step-{step:06d}" if kind == "dev" else kind), groups)
        line = {"kind": kind, "step": step, "pass_at_1": [0.5, 0.4, 0.6], "length": 1.0, "truncated": 0.0, **more}
        self.directory.metrics.append(line)
        return self

    def checkpoint(self, step: int) -> "FakeRun":
        self.directory.checkpoint(step).mkdir()
        self.directory.mark_best(step)
        return self


AT_ONCE = "<think>6×7=41</think>\\boxed{41}"
WORKED = "<think>6×7=42. Wait, let me check. 7×6=42.</think>\\boxed{42}"
OPEN = "<think>6×7="


@pytest.fixture
def fake_run(tmp_path: Path) -> FakeRun:
    """A run that has just begun: a recipe, nothing else."""
    return FakeRun(tmp_path / "run")


@pytest.fixture
def finished_run(fake_run: FakeRun) -> FakeRun:
    """Two problems, two samples each: from nothing correct to three of four."""
    wrong, right = (AT_ONCE, Outcome.WRONG), (WORKED, Outcome.CORRECT)
    before = [scored("6×7", [wrong, wrong]), scored("7×6", [wrong, (OPEN, Outcome.UNPARSABLE)])]
    after = [scored("6×7", [right, right]), scored("7×6", [wrong, right])]
    fake_run.evaluation("dev", 0, before, best=True).steps(0, 1, 2, 3).evaluation("dev", 4, after, best=True)
    fake_run.evaluation("test-before", 4, before).evaluation("test-after", 4, after).checkpoint(4)
    fake_run.directory.finished.write_text("{}")
    return fake_run


MakeGroup = Callable[[str, Sequence[Sample]], ScoredGroup]


@pytest.fixture
def group() -> MakeGroup:
    """Makes a scored group of a problem's name and its (text, outcome) pairs."""
    return scored


@pytest.fixture
def as_rank() -> Callable[[int, int], AbstractContextManager[None]]:
    """as_rank(of, rank): this process as one of so many ranks, which send nothing and get nothing."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from groupwise.ranks.group import RANKS

    @contextmanager
    def be(of: int, rank: int) -> Iterator[None]:
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=of)
        RANKS.rank, RANKS.size = rank, of
        try:
            yield
        finally:
            RANKS.rank, RANKS.size = 0, 1
            torch.distributed.destroy_process_group()

    return be


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """Skips where bubblewrap cannot be had; a sandbox that opens and does not hold is a failure, not a skip."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    trial = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    if trial.returncode:
        pytest.skip(f"this host forbids namespaces: {trial.stderr.decode().strip()}")


@pytest.fixture(scope="session")
def sandbox(bubblewrap: None) -> Iterator[Sandbox]:
    with open_sandbox(SandboxConfig(cpu_s=1)) as sandbox:
        yield sandbox


class FakeSandbox(Sandbox):
    """Runs nothing: a function says how each program ended. Keeps the programs, and of pairs the solvers."""

    config = SandboxConfig()

    def __init__(self, end: Callable[[Program], RunResult]) -> None:
        self._end, self.programs = end, list[Program]()

    def run_all(self, runs: Sequence[Sequence[Program]]) -> list[list[RunResult]]:
        self.programs += [run[-1] for run in runs]
        return [[self._end(program) for program in run] for run in runs]


@pytest.fixture
def fake_sandbox() -> type[FakeSandbox]:
    return FakeSandbox


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
