"""Tools on servers: a completion ends behind a text that may end a call, the result is appended as ids, it goes on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.models.policy import Policy
from groupwise.rollout.engine import Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.tool_rounds import generate_with_tools
from groupwise.rollout.tools import Call, Fault, Tool, ToolConfig, ToolResult
from groupwise.rollout.vllm.canary import trainer_logprobs
from groupwise.types import CallOutcome, FinishReason

Make = Callable[..., Any]
REQUESTS = [Request((5, 6, 7), tuple(range(4))), Request((8, 9), (21, 22, 23))]


class Letters(Tool):
    """A letter behind an odd number of characters is a call, so that a random policy calls often and pauses oftener."""

    opens = closes = "abcdefghijklmnopqrstuvwxyz"

    def look(self, text: str) -> Call | Fault | None:
        called = text[-1:] in tuple(self.opens) and len(text) % 2 == 0
        return Call(text, 0, closing="]") if called else None

    def stops(self, text: str) -> tuple[str, ...]:
        return tuple(self.opens)

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult(f"[{len(earlier)}", CallOutcome.DONE)


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.rollout.tool_watch.make_tools", lambda sections: {"v": Letters(sections["v"])})


def sampled(engine: Any, requests: Sequence[Request] = REQUESTS) -> list[list[Sampled]]:
    section = ToolConfig(kind=f"{Path(__file__).resolve()}:Letters", max_calls=2)
    sampling = SamplingConfig(max_tokens=24).model_copy(update={"tools": {"v": section}})
    found: dict[int, list[Sampled]] = {}

    def finished(index: int, group: list[Sampled]) -> None:
        assert index not in found
        found[index] = group

    generate_with_tools(engine, engine.policy, requests, sampling, finished)
    return [found[index] for index in range(len(requests))]


def test_completions_stop_get_a_result_and_go_on(started: Make, trained: Policy) -> None:
    server, engine = started()
    before = server.generated
    groups = sampled(engine)
    calls = sum(len(one.calls) for group in groups for one in group)
    assert calls > 3
    assert server.generated - before > 7 + calls  # some paused where there was no call
    for request, group in zip(REQUESTS, groups, strict=True):
        for one in group:
            text = trained.tokenizer.decode(one.token_ids[one.sampled].tolist())
            assert "".join(c.content for c in one.calls) == text[: sum(len(c.content) for c in one.calls)]
            assert one.sampled.sum() <= 24
            assert one.finish_reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_LIMIT)
            ours = trainer_logprobs(trained, request.token_ids, tuple(one.token_ids.tolist()))
            assert np.abs(ours - one.logprobs)[one.sampled].max() < 1e-5
            assert (one.logprobs[~one.sampled] == 0).all()


def test_the_number_of_servers_and_their_deaths_change_nothing(make_engine: Make, make_server: Make) -> None:
    expected = sampled(make_engine(make_server()))
    first, second = make_server(), make_server()
    engine = make_engine(first, second)
    engine.publish(engine.policy, 0)
    first.dies_after = first.generated + 5
    for a, b in zip(expected, sampled(engine), strict=True):
        assert [one.token_ids.tolist() for one in a] == [one.token_ids.tolist() for one in b]
        assert [one.sampled.tolist() for one in a] == [one.sampled.tolist() for one in b]  # type: ignore[union-attr]


def test_a_server_that_stops_nowhere_gives_as_many_calls(
    make_engine: Make, make_server: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop texts save tokens; what is behind a call is dropped without them."""
    with_stops, without = make_server(), make_server()
    expected = sampled(make_engine(with_stops))
    monkeypatch.setattr(Letters, "stops", lambda self, text: ())
    found = sampled(make_engine(without))
    for a, b in zip(expected, found, strict=True):
        for one, other in zip(a, b, strict=True):
            first = int(min(np.argmin(x.sampled) if not x.sampled.all() else len(x.sampled) for x in (one, other)))
            begin = min(first, 2)  # until the first pause both draw from the same seed
            assert one.token_ids[:begin].tolist() == other.token_ids[:begin].tolist() or first < 2
    assert without.generated < with_stops.generated
