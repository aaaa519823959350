"""Tools that fail, hang, answer late or cannot be closed."""

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from echo_tool import PROMPT, Echo, Plain, config, echo_config, ids_of, requests, sample

from groupwise.errors import SandboxError
from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.in_process import InProcessEngine
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools import Call, ToolConfig, ToolResult
from groupwise.rollout.tools.python import PythonToolConfig
from groupwise.sandbox.base import SandboxConfig
from groupwise.sandbox.opening import open_sandbox
from groupwise.types import CallOutcome, FinishReason

pytestmark = pytest.mark.usefixtures("echo")


class Broken(Echo):
    """Fails in one of the ways a tool can."""

    way: ClassVar[str] = ""

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        if self.way == "raises":
            raise OSError("no network")
        if self.way == "hangs":
            threading.Event().wait(30)
        raise AssertionError(self.way)


@pytest.mark.parametrize(
    ("way", "evidence"), [("raises", "echo: OSError: no network"), ("hangs", "echo: no result within 0.1 s")]
)
def test_a_tool_that_fails_ends_its_completion_and_nobody_elses(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, way: str, evidence: str
) -> None:
    monkeypatch.setattr(Echo, "run", Broken.run)
    monkeypatch.setattr(Echo, "way", way, raising=False)
    tools = echo_config(immediate=way != "hangs", timeout_s=0.1)
    found = [one for group in sample(tiny_policy(), requests(), config(tools, max_tokens=6)) for one in group]
    failed = [one for one in found if one.finish_reason is FinishReason.TOOL_FAILED]
    assert 0 < len(failed) < len(found)
    assert all(one.calls[-1].evidence == evidence for one in failed)
    assert all(one.sampled.all() for one in found)


def test_a_group_is_told_once_where_some_calls_fail(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Echo, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult("]", CallOutcome.FAILED if call < "m" else CallOutcome.DONE)

    monkeypatch.setattr(Echo, "run", run)
    groups = sample(tiny_policy(), requests(), config(echo_config(immediate=False)))
    ends = [{(one.finish_reason is FinishReason.TOOL_FAILED, len(one.calls) > 1) for one in group} for group in groups]
    assert any({(True, False), (False, True)} <= kinds for kinds in ends)
    assert all(one.finish_reason is not FinishReason.TOOL_CALL for group in groups for one in group)


def _exits() -> ToolResult:
    raise SystemExit(3)


def _recurses() -> ToolResult:
    return _recurses()


class OwnError(BaseException):
    """No Exception."""


def _raises() -> ToolResult:
    raise OwnError("own")


SAID: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: ToolResult("", CallOutcome.DONE), "its text and the marks around it are empty"),
    "a number": (lambda: ToolResult(3465, CallOutcome.DONE), "run gave a ToolResult of int"),  # type: ignore[arg-type]
    "an outcome": (lambda: ToolResult("1", "done"), "a ToolResult of str and str"),  # type: ignore[arg-type]
    "None": (lambda: None, "run gave NoneType and not ToolResult"),
    "half a character": (lambda: ToolResult("a\ud800b", CallOutcome.DONE), "its result cannot be put in: "),
    "exit": (_exits, "SystemExit: 3"),
    "no end": (_recurses, "RecursionError: "),
    "its own": (_raises, "OwnError: own"),
}


@pytest.mark.parametrize("knows_tools", [True, False])
@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("said", SAID)
def test_whatever_a_tool_does_the_run_goes_on(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, said: str, immediate: bool, knows_tools: bool
) -> None:
    policy, (run, evidence) = tiny_policy(), SAID[said]
    monkeypatch.setattr(Echo, "run", lambda *_: run())
    monkeypatch.setattr(Echo, "look", lambda self, text: Call(text, 0) if text[-1:] in tuple(self.closes) else None)
    check_failures(policy, echo_config(immediate=immediate), evidence, None if knows_tools else Plain(policy))


def check_failures(policy: Policy, tools: dict[str, ToolConfig], evidence: str, engine: Any) -> None:
    """Those that called have failed, with the tool and its fault; the others have not."""
    began = time.monotonic()
    found = [one for group in sample(policy, requests(), config(tools, max_tokens=6), engine) for one in group]
    failed = [one for one in found if one.finish_reason is FinishReason.TOOL_FAILED]
    assert 0 < len(failed) < len(found)
    assert all(evidence in one.calls[-1].evidence for one in failed)
    assert all(one.calls[-1].evidence.startswith("echo: ") for one in failed)
    assert all(one.calls[-1].outcome is CallOutcome.FAILED for one in failed)
    assert time.monotonic() - began < 30  # nobody waits for `timeout_s`


def _look_raises(self: Echo, text: str) -> Any:
    if text[-1:] in tuple(self.closes):
        raise RuntimeError("no look")
    return None


@pytest.mark.parametrize("knows_tools", [True, False])
@pytest.mark.parametrize(
    ("look", "evidence"),
    [
        (_look_raises, "RuntimeError: no look"),
        (lambda self, text: "call" if text[-1:] in tuple(self.closes) else None, "look of echo gave str"),
    ],
)
def test_a_tool_that_fails_to_look_ends_its_completion(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, look: Any, evidence: str, knows_tools: bool
) -> None:
    monkeypatch.setattr(Echo, "look", look)
    policy = tiny_policy()
    check_failures(policy, echo_config(), evidence, None if knows_tools else Plain(policy))


def test_a_tool_that_cannot_be_closed_is_named(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def close(self: Echo) -> None:
        closed.append(self)
        raise OSError("gone")

    monkeypatch.setattr(Echo, "close", close)
    tools = {"first": echo_config()["echo"], "second": echo_config()["echo"]}
    with pytest.warns(UserWarning, match="the tool (first|second) cannot be closed: OSError: gone") as said:
        assert len(sample(tiny_policy(), requests(), config(tools))) == 3
    assert len(closed) == len(said) == 2


def test_an_interrupt_passes(tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> ToolResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(Echo, "run", run)
    with pytest.raises(KeyboardInterrupt):
        sample(tiny_policy(), requests(), config(echo_config()))


def test_what_waits_for_a_place_or_a_start_has_not_begun(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`timeout_s` is the time of a call, not that of those before it, nor that of getting ready."""
    begun = list[float]()

    def start(self: Echo) -> None:
        if not begun:
            begun.append(time.monotonic())
            time.sleep(0.9)

    monkeypatch.setattr(Echo, "start", start)
    monkeypatch.setattr(Echo, "parallel", 1)
    tools = echo_config(immediate=False, wait_s=0.1, timeout_s=0.8)
    found = [one for group in sample(tiny_policy(), requests(), config(tools, max_tokens=6)) for one in group]
    assert sum(len(one.calls) for one in found) > 5
    assert {call.outcome for one in found for call in one.calls} <= {CallOutcome.DONE, CallOutcome.LIMIT}
    assert all(one.finish_reason is not FinishReason.TOOL_FAILED for one in found)


def test_programs_that_hang_fail_nobody_elses(tiny_policy: Callable[..., Policy]) -> None:
    """Many more calls than workers, most of which take all their time: they wait, and the others are answered."""
    sandbox = SandboxConfig(tier="landlock", cpu_s=1, wall_s=1)
    try:
        open_sandbox(sandbox).close()
    except SandboxError as error:
        pytest.skip(str(error))
    policy, programs = tiny_policy(), ["import time\ntime.sleep(60)"] * 6 + ["print(1)"] * 2
    turn = iter(programs)

    def generate(asked: Sequence[Request], sampling: SamplingConfig, on_finished: Any) -> None:
        for index, request in enumerate(asked):
            texts = ["!" if request.calls else f"```python\n{next(turn)}\n```" for _ in request.keys]
            values = [np.zeros(len(ids_of(policy, text)) + 1, np.float32) for text in texts]
            on_finished(index, [
                Sampled(np.array([*ids_of(policy, text), 1]), zeros, zeros, FinishReason.STOP)
                for text, zeros in zip(texts, values, strict=True)
            ])  # fmt: skip

    tools: dict[str, ToolConfig] = {"python": PythonToolConfig(sandbox=sandbox, timeout_s=2.5)}
    engine = SimpleNamespace(generate=generate, version=0)
    [group] = sample(policy, [Request(PROMPT, tuple(range(8)))], config(tools, 200), engine)
    outcomes = [one.calls[0].outcome for one in group]
    assert outcomes == [CallOutcome.TIMEOUT] * 6 + [CallOutcome.DONE] * 2


def test_calls_that_were_ended_from_outside_are_not_told(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Echo, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult(f"[{len(earlier)}", CallOutcome.TIMEOUT, repeatable=False)

    monkeypatch.setattr(Echo, "run", run)
    policy = tiny_policy()
    for immediate in (True, False):
        found = [one for group in sample(policy, requests(), config(echo_config(immediate=immediate))) for one in group]
        assert max(len(one.calls) for one in found) > 2
        assert not any("[1" in policy.tokenizer.decode(one.token_ids[~one.sampled].tolist()) for one in found)


def test_calls_that_take_long_stop_nobody_else(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that answers once another completion is told: it would wait in vain if that one waited for the tool."""
    told, waited = threading.Event(), list[bool]()

    def run(self: Echo, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        waited.append(told.wait(10))
        return ToolResult("[", CallOutcome.DONE)

    monkeypatch.setattr(Echo, "run", run)
    monkeypatch.setattr(Echo, "look", lambda self, text: Call(text, 0) if "e" in text[:6] and text[-1] == "e" else None)
    policy, ends = tiny_policy(), dict[int, list[Sampled]]()
    many = requests([1] * 12)

    def finished(index: int, group: list[Sampled]) -> None:
        ends[index] = group
        told.set()

    sampling = config(echo_config(immediate=False))
    generate_with_tools(InProcessEngine(None, policy), policy, many, sampling, finished)  # type: ignore[arg-type]
    calls = [len(group[0].calls) for group in ends.values()]
    assert len(calls) == 12
    assert 0 < len(waited) == sum(calls)
    assert all(waited)
    assert max(len(group[0].token_ids) for group in ends.values() if not group[0].calls) == 40
