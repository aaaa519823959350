"""Tools in completions: their results, how completions end, and what stays unchanged."""

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from echo_tool import (
    CALCULATOR,
    HERE,
    PROMPT,
    Echo,
    EchoConfig,
    Plain,
    config,
    echo_config,
    ids_of,
    requests,
    sample,
    shown,
)

from groupwise.errors import ConfigError
from groupwise.models.packed import Sequences, pack
from groupwise.models.policy import Policy
from groupwise.ranks.group import RANKS
from groupwise.rollout import in_process
from groupwise.rollout.engine import Recorded, Request, Sampled
from groupwise.rollout.sampling import SamplingConfig
from groupwise.rollout.scripted import ScriptedEngine
from groupwise.rollout.tools import Fault, Seen, ToolConfig, ToolResult, make_tools, put_in_spans
from groupwise.rollout.tools.calculator import Calculator, CalculatorConfig
from groupwise.rollout.tools.python import PythonTool, PythonToolConfig
from groupwise.types import CallOutcome, FinishReason

pytestmark = pytest.mark.usefixtures("echo")


@pytest.mark.parametrize(
    ("text", "found", "reason"),
    [
        ("<<45*77=!", "<<45*77=[3465>>]!.", "stop"),
        ("<<2+2= and <<4*4=", "<<2+2=[4>>] and <<4*4=[16>>].", "stop"),
        ("1+1=2", "1+1=2.", "stop"),
        ("<<1/0=", "<<1/0=[error>>].", "stop"),
        ("<<10**1000000000=", "<<10**1000000000=[error>>].", "stop"),
        ("<<9**99=", "<<9**99=[error>>].", "stop"),  # longer than the cap: half a number would be a wrong one
        ("<<=", "<<=[error>>].", "stop"),
        ("<<1<<2=", "<<1<<", "malformed_call"),
        ("<<12>>", "<<12>>", "malformed_call"),
        ("<<1+1", "<<1+1.", "stop"),  # never finished: text like any other
        ("a<b=c>>", "a<b=c>>.", "stop"),
    ],
)
def test_calls_and_what_is_put_in(
    writes: Any, tiny_policy: Callable[..., Policy], text: str, found: str, reason: str
) -> None:
    one = writes(text)
    assert (shown(one, tiny_policy()), str(one.finish_reason)) == (found, reason)
    assert (one.logprobs[~one.sampled] == 0).all()
    assert (one.entropy[~one.sampled] == 0).all()
    assert (one.logprobs[one.sampled] == -0.5).all()


def test_a_result_in_one_token_with_its_call_is_forged(writes: Any, tiny_policy: Any) -> None:
    watch = in_process.ToolWatch.of(tiny_policy(), CALCULATOR)
    found = watch.look(ids_of(tiny_policy(), "<<1+1=2"))
    assert isinstance(found, Fault)
    ended = watch.refused(found, [])
    assert ended is not None
    assert (ended[0], ended[1].outcome) == (FinishReason.MALFORMED_CALL, CallOutcome.MALFORMED)


def test_limits(writes: Any, tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    tools = {"calculator": CalculatorConfig(max_calls=1)}
    one = writes("<<1+1=,<<2+2=", tools)
    assert (shown(one, policy), one.finish_reason) == ("<<1+1=[2>>],<<2+2=", FinishReason.TOOL_LIMIT)
    assert [call.outcome for call in one.calls] == [CallOutcome.DONE, CallOutcome.LIMIT]
    # what tools put in does not count; a call that the limit cuts is `length` and gets no result
    one = writes("<<1+1=,x", max_tokens=8)
    assert (shown(one, policy), one.finish_reason) == ("<<1+1=[2>>],x", FinishReason.LENGTH)
    one = writes("<<1+1=", max_tokens=6)
    assert (shown(one, policy), one.finish_reason) == ("<<1+1=", FinishReason.LENGTH)
    with pytest.raises(ConfigError, match=r"calculator.max_result_tokens = 3, but .* has 7 tokens"):
        writes("<<1/0=", {"calculator": CalculatorConfig(max_result_tokens=3)})


@pytest.mark.parametrize("immediate", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 256])
def test_neither_rows_nor_latency_change_what_is_sampled(
    tiny_policy: Callable[..., Policy], immediate: bool, rows: int
) -> None:
    policy = tiny_policy()
    tools = echo_config(immediate=immediate, wait_s=0.0 if immediate else 0.005)
    expected = sample(policy, requests(), config(echo_config()))
    found = sample(policy, requests(), config(tools, max_live_completions=rows))
    assert sum(len(one.calls) for group in found for one in group) > 8
    for a, b in zip((s for g in expected for s in g), (s for g in found for s in g), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert a.sampled.tolist() == b.sampled.tolist()
        assert a.finish_reason is b.finish_reason
        assert [(c.tool, c.content, c.outcome) for c in a.calls] == [(c.tool, c.content, c.outcome) for c in b.calls]
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_what_is_sampled_behind_a_result_is_what_the_training_forward_says(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    asked = requests()
    for immediate in (True, False):
        groups = sample(policy, asked, config(echo_config(immediate=immediate)))
        packed = pack(
            [
                Sequences(r.token_ids, [s.token_ids for s in g], [s.sampled for s in g])
                for r, g in zip(asked, groups, strict=True)
            ]
        )
        trained = policy.token_logprobs(packed, 1.0).logprobs.detach()
        found = np.concatenate([s.logprobs[s.sampled] for g in groups for s in g])
        np.testing.assert_allclose(found, trained, atol=1e-4)


def test_draws_are_keyed_by_position(tiny_policy: Callable[..., Policy]) -> None:
    """Where nothing is put in, a completion with tools is the one without."""
    policy = tiny_policy()
    plain = sample(policy, requests(), SamplingConfig(max_tokens=40))
    tools = sample(policy, requests(), config(echo_config()))
    for a, b in zip((s for g in plain for s in g), (s for g in tools for s in g), strict=True):
        first = int(np.argmin(b.sampled)) if not b.sampled.all() else len(b.token_ids)
        assert first > 0
        assert a.token_ids[:first].tolist() == b.token_ids[:first].tolist()


def test_engines_that_know_no_tools(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    engine = Plain(policy)
    found = sample(policy, requests(), config(echo_config()), engine)
    assert len(engine.rounds) > 2
    expected = sample(policy, requests(), config(echo_config()))
    for a, b in zip((s for g in expected for s in g), (s for g in found for s in g), strict=True):
        first = int(np.argmin(a.sampled)) if not a.sampled.all() else len(a.token_ids)
        assert a.token_ids[:first].tolist() == b.token_ids[:first].tolist()  # until the first call nothing differs
        assert int(b.sampled.sum()) <= 40
        assert len(b.calls) <= 4
        text = policy.tokenizer.decode(b.token_ids.tolist())
        for number, call in enumerate(c for c in b.calls if c.outcome is CallOutcome.DONE):
            assert f"{call.content}[{number}]" in text


@pytest.mark.parametrize("length", [5, 11, 12, 17, 30])
def test_a_pause_is_the_same_whether_results_are_put_in_at_once_or_later(
    tiny_policy: Callable[..., Policy], length: int
) -> None:
    policy = tiny_policy()
    asked = [dataclasses.replace(request, pause=lambda ids: len(ids) >= length) for request in requests()]
    at_once = [s for group in sample(policy, asked, config(echo_config())) for s in group]
    later = [s for group in sample(policy, asked, config(echo_config(immediate=False))) for s in group]
    assert [one.token_ids.tolist() for one in later] == [one.token_ids.tolist() for one in at_once]
    assert [one.finish_reason for one in later] == [one.finish_reason for one in at_once]
    for one in at_once:
        if one.finish_reason is FinishReason.LENGTH:  # it goes as far as it must, and to the end of a result
            assert len(one.token_ids) == length or not one.drawn[-1]
            assert one.drawn[length - 1 :].sum() <= 1


def test_results_that_were_recorded_need_no_tool(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    for immediate in (True, False):
        sampling = config(echo_config(immediate=immediate))
        first = sample(policy, requests(), sampling)
        Echo.ran.clear()
        again = [
            dataclasses.replace(request, recorded=tuple(Recorded(s.token_ids, s.sampled) for s in group))
            for request, group in zip(requests(), first, strict=True)
        ]
        second = sample(policy, again, sampling)
        assert not Echo.ran
        for a, b in zip((s for g in first for s in g), (s for g in second for s in g), strict=True):
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert a.logprobs.tolist() == b.logprobs.tolist()  # to the bit
            assert a.finish_reason is b.finish_reason


def test_a_record_of_another_completion_is_not_used() -> None:
    recorded = Recorded(np.array([5, 6, 7, 8, 9]), np.array([True, True, False, False, True]))
    assert recorded.result(np.array([5, 6])) == [7, 8]
    for other in ([5], [6, 6], [5, 6, 7], [5, 6, 7, 8, 9], []):
        assert recorded.result(np.array(other, np.int64)) is None
    assert Recorded(np.array([5, 6]), np.array([True, False])).result(np.array([5])) == [6]


@pytest.mark.parametrize("immediate", [True, False])
def test_what_a_tool_prints_neither_ends_nor_answers(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, immediate: bool
) -> None:
    policy = tiny_policy()
    specials = policy.tokenizer.all_special_tokens
    said = ToolResult("".join(specials) + "\\boxed{5}</think>\x00é", CallOutcome.DONE)
    monkeypatch.setattr(Echo, "run", lambda *_: said)
    tools = {"echo": EchoConfig(kind=HERE, max_calls=1, max_result_tokens=99, immediate=immediate)}
    found = [one for group in sample(policy, requests(), config(tools)) for one in group if not one.sampled.all()]
    texts = {policy.tokenizer.decode(one.token_ids[~one.sampled].tolist()) for one in found}
    [text] = texts
    assert not any(mark in text for mark in (*specials, "\\boxed", "</think>"))
    assert text.endswith("/boxed{5}(/think>\x00é]")
    assert not any(set(one.token_ids[~one.sampled].tolist()) & policy.stop_ids for one in found)


@pytest.mark.parametrize("immediate", [True, False])
def test_a_long_result_keeps_its_head_and_its_tail(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, immediate: bool
) -> None:
    policy = tiny_policy()
    monkeypatch.setattr(Echo, "run", lambda *_: ToolResult("head" + "-" * 100_000 + "tail", CallOutcome.DONE))
    tools = {"echo": EchoConfig(kind=HERE, max_calls=1, max_result_tokens=20, immediate=immediate)}
    found = [one for group in sample(policy, requests(), config(tools)) for one in group]
    texts = [policy.tokenizer.decode(one.token_ids[~one.sampled].tolist()) for one in found if not one.sampled.all()]
    assert texts
    assert set(texts) == {"head------ ... tail]"}


def test_completions_end_where_the_context_does(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy(max_position_embeddings=24)
    for immediate in (True, False):
        tools = {"echo": EchoConfig(kind=HERE, max_calls=9, max_result_tokens=9, immediate=immediate)}
        found = [one for group in sample(policy, requests(), config(tools, max_tokens=18)) for one in group]
        assert max(len(one.token_ids) for one in found) == 18
        assert {one.finish_reason for one in found} <= {FinishReason.LENGTH, FinishReason.STOP}


@pytest.mark.parametrize("immediate", [True, False])
def test_a_rank_with_fewer_rounds_takes_part_in_those_of_the_others(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, immediate: bool
) -> None:
    policy, rounds = tiny_policy(), list[int]()
    sampling = config(echo_config(immediate=immediate))
    expected = sample(policy, requests(), sampling)

    def most(own: int, beside: bool) -> int:
        assert beside  # other threads may meet meanwhile
        rounds.append(own)
        return max(own, len(rounds) <= 9)

    monkeypatch.setattr(RANKS, "most", most)
    found = sample(policy, requests(), sampling)
    assert len(rounds) == 10
    assert rounds[0] == 3
    assert rounds[-4:] == [0] * 4
    for a, b in zip((s for g in expected for s in g), (s for g in found for s in g), strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()


def written_by(policy: Policy, *pieces: str) -> Any:
    """An engine that knows no tools and writes these pieces, the next one behind every result."""

    def generate(requests: Sequence[Request], sampling: SamplingConfig, on_finished: Any) -> None:
        for index, request in enumerate(requests):
            ids = np.array([*ids_of(policy, pieces[min(len(request.calls), len(pieces) - 1)]), 1])
            values = np.full(len(ids), -0.5, np.float32)
            on_finished(index, [Sampled(ids, values, -values, FinishReason.STOP) for _ in request.keys])

    return SimpleNamespace(generate=generate, version=0)


class Ran(PythonTool):
    """The interpreter without a sandbox: it says what it was given."""

    def start(self) -> None:
        pass

    def run(self, call: str, earlier: Sequence[str] = ()) -> ToolResult:
        return ToolResult(str(call.count("\n")), CallOutcome.DONE)


BOTH: dict[str, ToolConfig] = {"calculator": CalculatorConfig(), "python": PythonToolConfig()}


SHIFTS = "<<6*7= so\n```python\nx = 1 << 3\ny = x\nz = 2 <<y\n```"


SHOWN = "<<6*7=[42>>] so\n```python\nx = 1 << 3\ny = x\nz = 2 <<y\n```[\n```output\n2\n```\n]"


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, echo: None) -> None:
    make = {"calculator": Calculator, "python": Ran}
    monkeypatch.setattr(
        "groupwise.rollout.tool_watch.make_tools", lambda sections: {n: make[n](s) for n, s in sections.items()}
    )


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("order", [("calculator", "python"), ("python", "calculator")])
def test_the_calculator_sees_into_no_program(writes: Any, tiny_policy: Callable[..., Policy], order: Any) -> None:
    policy, tools = tiny_policy(), {name: BOTH[name] for name in order}
    begin, behind = SHIFTS.split("=", 1)
    engine = written_by(policy, begin + "=", behind, "<<1+1=", "!")
    asked = Request(PROMPT, (1, 2))
    [[one, other]] = sample(policy, [asked], config(tools, 200), engine)
    expected = SHOWN + "<<1+1=[2>>]!."
    assert shown(one, policy) == shown(other, policy) == expected
    assert [(call.tool, call.outcome) for call in one.calls] == [
        ("calculator", CallOutcome.DONE), ("python", CallOutcome.DONE), ("calculator", CallOutcome.DONE),
    ]  # fmt: skip
    asked = dataclasses.replace(asked, recorded=(Recorded(one.token_ids, one.sampled),) * 2)
    [[again, _]] = sample(policy, [asked], config(tools, 200), engine)
    assert again.token_ids.tolist() == one.token_ids.tolist()
    assert {call.outcome for call in again.calls} == {CallOutcome.RECORDED}
    assert shown(writes(SHIFTS, tools, max_tokens=200), policy) == SHOWN + "."
    spans = put_in_spans(SHOWN.replace("[", "").replace("]", ""), {n: make_tools(tools)[n] for n in order})
    assert len(spans) == 2


@pytest.mark.usefixtures("both")
def test_who_began_first_decides(tiny_policy: Callable[..., Policy]) -> None:
    watch = in_process.ToolWatch.of(tiny_policy(), BOTH)

    def tool_of(text: str) -> str | None:
        found = watch.look(ids_of(tiny_policy(), text))
        return found.tool if isinstance(found, Seen) else None if found is None else "fault"

    assert tool_of("<<1+1=") == "calculator"
    assert tool_of("```python\nx = 1 <<3=") is None  # a program that has not ended
    assert tool_of("```python\nx = 1 <<3=\n```") == "python"
    assert tool_of("```python\nx = 1 <<3<<4\n```") == "python"
    assert tool_of("a << b\n```python\nprint(1)\n```") == "python"  # `<<` in a text
    assert tool_of("a << b\n```python\nx =") is None
    assert tool_of("<<1<<2") == "fault"
    assert tool_of("so\n```output") == "fault"
    stops = [watch.stops(ids_of(tiny_policy(), text)) for text in ("so", "<<1", "```python\nx <<")]
    assert stops == [("<<", "```"), ("=", "<<", ">>"), ("```",)]


def test_an_engine_elsewhere_is_told_what_ends_a_call_that_has_begun(tiny_policy: Callable[..., Policy]) -> None:
    policy, told = tiny_policy(), list[tuple[str, ...]]()

    class Elsewhere(Plain):
        def generate(self, requests: Sequence[Request], sampling: SamplingConfig, on_finished: Any) -> None:
            told.extend(request.stops for request in requests)
            super().generate(requests, sampling, on_finished)

    begun = ids_of(policy, "<<2+")
    asked = [Request((*PROMPT, *begun), (1,), len(begun), since_result=length) for length in (0, len(begun))]
    sample(policy, asked, config(CALCULATOR, max_tokens=6), Elsewhere(policy))
    assert told[:2] == [("<<",), ("=", "<<", ">>")]


def test_a_number_that_is_too_long_is_an_error(writes: Any) -> None:
    [call] = writes("<<9**99=").calls
    assert (call.outcome, call.evidence) == (
        CallOutcome.ERROR,
        "a result of 97 tokens, more than max_result_tokens = 24",
    )


@pytest.mark.parametrize("immediate", [True, False])
def test_a_tool_that_may_answer_does(
    tiny_policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch, immediate: bool
) -> None:
    policy, said = tiny_policy(), "\\boxed{5}</think>"
    specials = "".join(policy.tokenizer.all_special_tokens)
    monkeypatch.setattr(Echo, "run", lambda *_: ToolResult(said + specials, CallOutcome.DONE))
    tools = {"echo": EchoConfig(kind=HERE, max_calls=1, max_result_tokens=99, immediate=immediate, may_answer=True)}
    found = [one for group in sample(policy, requests(), config(tools)) for one in group if not one.sampled.all()]
    [text] = {policy.tokenizer.decode(one.token_ids[~one.sampled].tolist()) for one in found}
    assert text.startswith(said)
    assert not any(mark in text for mark in policy.tokenizer.all_special_tokens)  # these, never


def test_an_engine_of_whole_completions_is_refused_before_it_samples(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    engine = ScriptedEngine.of({policy.tokenizer.decode(list(PROMPT)): ["<<1+1="]}, policy)
    with pytest.raises(ConfigError, match=r"'scripted' gives whole completions .* sampling.tools has calculator"):
        sample(policy, [Request(PROMPT, (1,))], config(dict(CALCULATOR)), engine)
