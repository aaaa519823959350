"""A tool that random policies call often, and helpers to sample with it."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from groupwise.models.policy import Policy
from groupwise.randomness import key
from groupwise.rollout import in_process
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.in_process import InProcessEngine
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.rollout.tools.calculator import CalculatorConfig
from groupwise.types import CallOutcome

PROMPT = (40, 41, 42, 43, 44)


CALCULATOR = {"calculator": CalculatorConfig()}


class EchoConfig(ToolConfig):
    """Calls end with any of these characters, so that random policies call often."""

    immediate: bool = True
    wait_s: float = 0.0


class Echo(Tool):
    """Says how often it was called."""

    Config = EchoConfig
    opens = closes = "abcdefghijklmnopqrstuvwxyz"
    config: EchoConfig
    ran: ClassVar[list[str]] = []

    @property
    def immediate(self) -> bool:  # type: ignore[override]
        return self.config.immediate

    def look(self, text: str) -> Call | Fault | None:
        return Call(text[-1], len(text) - 1, closing="]") if text[-1:] in self.closes and text else None

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        time.sleep(self.config.wait_s)
        self.ran.append(call)
        return ToolResult(f"[{len(earlier)}", CallOutcome.DONE)


HERE = f"{Path(__file__).resolve()}:Echo"


def config(tools: dict[str, ToolConfig], max_tokens: int = 40, **changes: Any) -> SamplingConfig:
    return SamplingConfig(max_tokens=max_tokens).model_copy(update={"tools": tools, **changes})


def echo_config(**changes: Any) -> dict[str, ToolConfig]:
    return {"echo": EchoConfig(kind=HERE, max_calls=3, max_result_tokens=8, **changes)}


def sample(policy: Policy, requests: Sequence[Request], sampling: SamplingConfig, engine: Any = None) -> list[Any]:
    results: dict[int, list[Sampled]] = {}
    engine = engine or InProcessEngine(None, policy)  # type: ignore[arg-type]

    def finished(index: int, group: list[Sampled]) -> None:
        assert index not in results  # told once, when the last of them has ended
        results[index] = group

    generate_with_tools(engine, policy, requests, sampling, finished)
    return [results[i] for i in range(len(requests))]


def requests(sizes: Sequence[int] = (4, 3, 5)) -> list[Request]:
    return [Request((*PROMPT, 70 + r), tuple(key("tools", r, s) for s in range(n))) for r, n in enumerate(sizes)]


def ids_of(policy: Policy, text: str) -> list[int]:
    return list(policy.tokenizer(text, add_special_tokens=False)["input_ids"])


def shown(one: Sampled, policy: Policy) -> str:
    """The text, what was put in between brackets."""
    assert one.sampled is not None
    pieces, inside = [], False
    for token, drawn in zip(one.token_ids.tolist(), one.sampled.tolist(), strict=True):
        if drawn == inside:
            pieces.append("]" if drawn else "[")
            inside = not inside
        pieces.append("." if token == 1 else policy.tokenizer.decode([token]))
    return "".join(pieces) + ("]" if inside else "")


class Plain:
    """An engine that knows nothing of tools, keys that go on, or limits of a request."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version = policy, 0
        self.rounds: list[int] = []

    def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: Any) -> None:
        self.rounds.append(len(requests))
        bare = [Request(request.token_ids, request.keys) for request in requests]
        in_process.generate(self.policy, bare, sampling.model_copy(update={"tools": {}}), on_finished)
