"""Endpoints that are slow, fail, lie or flood, and what is done about it: deadlines, retries, budget, cache."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import VerifierError
from groupwise.sandbox import post as post_module
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Request
from groupwise.verifiers.judge import backoff_s, retry_after_s

YES = "VERDICT: CORRECT"
PREFIX = b"HTTP/1.1 200 OK\r\n"


def raw(data: bytes) -> Callable[[Any, int], None]:
    return lambda exchange, _: exchange.wfile.write(data)


def chat(content: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).encode()


def silent(exchange: Any, _: int) -> None:
    exchange.server.over.wait(20)


def dripping(exchange: Any, _: int) -> None:
    exchange.wfile.write(PREFIX + b"\r\n")
    while not exchange.server.over.wait(0.02):
        exchange.wfile.write(b" ")


def dripping_headers(exchange: Any, _: int) -> None:
    exchange.wfile.write(PREFIX)
    while not exchange.server.over.wait(0.02):
        exchange.wfile.write(b"x")


@pytest.mark.parametrize("behaviour", [silent, dripping, dripping_headers])
def test_the_deadline_of_a_request_holds(endpoint: Any, ask: Any, behaviour: Any) -> None:
    endpoint.behaviour = behaviour
    began = time.monotonic()
    verdict = ask(request_timeout_s=0.2, max_attempts=2)
    assert 0.4 <= time.monotonic() - began < 15
    assert (verdict.outcome, verdict.reward, verdict.measures) == (Outcome.TIMEOUT, None, {})
    assert "0.2 s" in verdict.evidence
    assert came(endpoint, 2) == 2


def came(endpoint: Any, least: int) -> int:
    """Number of requests, once there are at least so many: a busy endpoint reads them after their sender gave up."""
    deadline = time.monotonic() + 20
    while len(endpoint.bodies) < least and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(endpoint.bodies)


@pytest.mark.parametrize(("request_s", "requests"), [(0.5, (2, 3)), (20.0, (1,))])
def test_the_total_deadline_holds(endpoint: Any, ask: Any, request_s: float, requests: tuple[int, ...]) -> None:
    endpoint.behaviour = silent
    began = time.monotonic()
    verdict = ask(request_timeout_s=request_s, total_timeout_s=1.25, max_attempts=100)
    assert time.monotonic() - began < 15
    assert verdict.outcome is Outcome.TIMEOUT
    assert came(endpoint, min(requests)) in requests


@pytest.mark.parametrize("status", [500, 502, 503, 529, 429, None])  # None: the connection breaks
def test_a_passing_failure_is_tried_again(endpoint: Any, ask: Any, status: int | None) -> None:
    def busy(exchange: Any, number: int) -> None:
        if number == 3:
            exchange.say(YES)
        elif status:
            exchange.send({"error": "busy"}, status)

    endpoint.behaviour = busy
    assert ask().outcome is Outcome.CORRECT
    assert endpoint.bodies == [endpoint.bodies[0]] * 3


def sends(body: Any, status: int, **headers: str) -> Callable[[Any, int], None]:
    return lambda exchange, _: exchange.send(body, status, **headers)


NO_CHAT = [
    b"\r\nnot JSON", b"\r\n" + chat(YES)[:-3], b"\r\n{}",
    b"Content-Length: 20\r\n\r\n" + chat(YES),  # shorter than the body
    b"Content-Length: 0\r\n\r\n" + chat(YES),
]  # fmt: skip
NOT_WHOLE = [
    b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 99999999999 what\r\n\r\n",
    PREFIX + b"Content-Length: 9999\r\n\r\n" + chat(YES),
    PREFIX + b"Content-Length: 99999999999999999\r\n\r\n" + chat(YES),
    PREFIX + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\n" + chat(YES),
    PREFIX + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + chat(YES),
    PREFIX + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + chat(YES),
    PREFIX + b"A: b\r\n" * 200 + b"\r\n" + chat(YES), PREFIX + b"A: " + b"b" * 70_000 + b"\r\n\r\n" + chat(YES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("behaviour", "attempts", "requests", "outcome", "evidence"),
    [
        (sends({"error": "out of memory"}, 500), 3, 3, "crashed", ["HTTP 500", "out of memory", "attempt 3, the last"]),
        *((sends({"error": "no such model"}, status, Retry_After="0"), 5, 1, "crashed", [f"HTTP {status}", "no such"])
          for status in (400, 401, 403, 404, 422)),
        (sends({}, 429, Retry_After="3600"), 5, 1, "timeout", ["3.6e+03 s"]),  # the wait is not begun
        *((raw(PREFIX + data), 5, 1, "crashed", ["not a chat completion"]) for data in NO_CHAT),
        *((raw(data), 2, 2, "crashed", ["it broke"]) for data in NOT_WHOLE),
    ],
)  # fmt: skip
def test_only_what_may_pass_is_tried_again(
    endpoint: Any, ask: Any,
    behaviour: Any, attempts: int, requests: int, outcome: str, evidence: list[str],
) -> None:  # fmt: skip
    endpoint.behaviour = behaviour
    began = time.monotonic()
    verdict = ask(max_attempts=attempts)
    assert time.monotonic() - began < 15
    assert (verdict.outcome, verdict.reward, len(endpoint.bodies)) == (outcome, None, requests)
    assert all(text in verdict.evidence for text in evidence), verdict.evidence


def test_nobody_there_is_the_verifiers_failure(ask: Any, start_endpoint: Any) -> None:
    gone = start_endpoint()
    gone.shutdown()
    gone.server_close()
    verdict = ask(url=gone.url, max_attempts=2)
    assert verdict.outcome is Outcome.CRASHED
    assert "refused" in verdict.evidence


def test_retry_after_is_waited_for(endpoint: Any, ask: Any) -> None:
    endpoint.behaviour = lambda exchange, n: exchange.say(YES) if n > 1 else exchange.send({}, 429, Retry_After="1")
    began = time.monotonic()
    assert ask().outcome is Outcome.CORRECT
    assert 1 <= time.monotonic() - began < 15


def test_retry_after_is_read_as_seconds_or_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 784111770.0)  # 1994-11-06 08:49:30 UTC
    values = ["17", "0.5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:00 GMT"]
    assert [retry_after_s(value) for value in values] == [17, 0.5, 7, 0]
    odd = ["", "-3", "inf", "nan", "1e9", "soon", "9" * 400, "Sun, 99 Nov 1994", "\x00"]
    assert {retry_after_s(value) for value in odd} == {0}


def test_backoff_doubles_with_a_jitter_of_its_own_for_every_request() -> None:
    for attempt in range(1, 8):
        waits = {backoff_s(3.0, f"{request:064x}", attempt) / (3.0 * 2 ** (attempt - 1)) for request in range(200)}
        assert len(waits) == 200
        assert 0.5 <= min(waits) < 0.55
        assert 1.45 < max(waits) < 1.5
    assert backoff_s(3.0, "a", 1) == backoff_s(3.0, "a", 1)


@pytest.mark.parametrize(
    "start", [b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"", b"Content-Length: 999999999\r\n\r\n"]
)
def test_an_endless_reply_is_not_read_to_its_end(
    endpoint: Any, ask: Any, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_module, "MAX_BYTES", 1 << 18)
    piece = {b"": b"A: b\r\n" * 5, b"\r\n": b" " * 65536}.get(start, b"10000\r\n" + b" " * 65536 + b"\r\n")

    def flood(exchange: Any, _: int) -> None:
        exchange.wfile.write(PREFIX + start)
        while not exchange.server.over.is_set():
            exchange.wfile.write(piece)

    endpoint.behaviour = flood
    verdict = ask(max_attempts=1)
    assert verdict.outcome is Outcome.CRASHED
    assert "longer than" in verdict.evidence or (start == b"" and "more than 100 headers" in verdict.evidence)


def test_endless_continues_are_not_read_to_their_end(endpoint: Any, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_module, "MAX_BYTES", 1 << 14)
    endpoint.behaviour = raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000)
    assert "longer than" in ask(max_attempts=1).evidence


def test_a_reply_without_verdict_is_counted_and_not_tried_again(endpoint: Any, ask: Any) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.say("VERDICT: CORRECT\nI think \ud800.")
    verdict = ask()
    assert (verdict.outcome, verdict.measures, len(endpoint.bodies)) == (Outcome.CRASHED, {"cannot_judge": 1.0}, 1)
    verdict.evidence.encode()


def test_the_next_request_is_judged_after_a_failure(endpoint: Any, make_judge: Any, problem: Problem) -> None:
    endpoint.behaviour = lambda exchange, n: exchange.say(YES) if n > 1 else exchange.send({}, 400)
    judge = make_judge()
    assert [judge.verify(problem, "Paris").outcome.value for _ in range(2)] == ["crashed", "correct"]


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_so_many_at_one_time(endpoint: Any, make_judge: Any, problem: Problem, limit: int) -> None:
    def slow(exchange: Any, number: int) -> None:
        deadline = time.monotonic() + 10
        while exchange.server.most_at_once < limit and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)  # so that one too many would be seen
        exchange.say(YES)

    endpoint.behaviour = slow
    judge = make_judge(max_concurrency=limit)
    verdicts = judge.verify_many([Request(problem, f"Paris {n}") for n in range(9)])
    assert {verdict.outcome for verdict in verdicts} == {Outcome.CORRECT}
    assert (endpoint.most_at_once, len(endpoint.bodies)) == (limit, 9)


def test_spent_requests_stop_the_run(endpoint: Any, make_judge: Any, problem: Problem, tmp_path: Path) -> None:
    judge = make_judge(max_requests=3, max_concurrency=1, cache_dir=str(tmp_path))
    requests = [Request(problem, f"Paris {n}") for n in range(9)]
    with pytest.raises(VerifierError, match=r"3 of verifier\.judge\.max_requests = 3"):
        judge.verify_many(requests)
    assert len(endpoint.bodies) == 3
    assert [v.outcome.value for v in judge.verify_many(requests[:3])] == ["correct"] * 3  # what was paid for is kept


def test_retries_are_paid_from_the_budget(endpoint: Any, ask: Any) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.send({}, 503)
    with pytest.raises(VerifierError, match="max_requests = 2"):
        ask(max_requests=2)
    assert len(endpoint.bodies) == 2


def test_spent_tokens_stop_the_run(endpoint: Any, make_judge: Any, problem: Problem) -> None:
    judge = make_judge(max_total_tokens=250)  # the endpoint says 100 each
    assert [judge.verify(problem, f"Paris {n}").outcome.value for n in range(3)] == ["correct"] * 3
    with pytest.raises(VerifierError, match=r"300 of verifier\.judge\.max_total_tokens = 250"):
        judge.verify(problem, "Paris 4")


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": -5}, {"total_tokens": "3"}, {"total_tokens": 1.5}])
def test_tokens_that_nobody_counted_are_counted_too_many(
    endpoint: Any, make_judge: Any, problem: Problem, usage: Any
) -> None:
    endpoint.behaviour = lambda exchange, _: exchange.say(YES, usage=usage)
    judge = make_judge(max_total_tokens=1000, max_tokens=999)
    assert judge.verify(problem, "Paris").outcome is Outcome.CORRECT
    with pytest.raises(VerifierError, match="max_total_tokens"):
        judge.verify(problem, "Lyon")


def test_an_equal_request_is_not_sent_again_even_after_a_restart(endpoint: Any, ask: Any, tmp_path: Path) -> None:
    first = ask(cache_dir=str(tmp_path / "new"))
    again = ask(cache_dir=str(tmp_path / "new"), max_requests=1, max_attempts=9)
    assert first == again
    assert len(endpoint.bodies) == 1
    assert ask() == first
    assert len(endpoint.bodies) == 2


@pytest.mark.parametrize(
    "change", [{"model": "b"}, {"max_tokens": 7}, {"see": "completion"},
               {"prompt": "{reference} {answer}"}, {"mode": "rubric"}, {"reasoning_model": True}]
)  # fmt: skip
def test_what_matters_is_part_of_the_key(
    endpoint: Any, make_judge: Any, problem: Problem, tmp_path: Path, change: dict[str, Any]
) -> None:
    for settings in ({}, change):
        make_judge(cache_dir=str(tmp_path), **settings).verify(problem, "<think>x</think>Paris")
    assert len(endpoint.bodies) == 2


def test_another_address_is_another_judge(
    endpoint: Any, make_judge: Any, start_endpoint: Any, problem: Problem, tmp_path: Path
) -> None:
    other = start_endpoint()
    other.behaviour = lambda exchange, _: exchange.say("VERDICT: WRONG")
    outcomes = [make_judge(cache_dir=str(tmp_path), url=e.url).verify(problem, "P").outcome for e in (endpoint, other)]
    assert outcomes == [Outcome.CORRECT, Outcome.WRONG]


def test_failures_are_not_kept_and_unclear_replies_are(
    endpoint: Any, make_judge: Any, problem: Problem, tmp_path: Path
) -> None:
    endpoint.behaviour = lambda exchange, n: exchange.send({}, 400) if n == 1 else exchange.say("Hm.")
    judge = make_judge(cache_dir=str(tmp_path))
    evidence = [judge.verify(problem, "Paris").evidence for _ in range(3)]
    assert "HTTP 400" in evidence[0]
    assert evidence[1] == evidence[2]
    assert len(endpoint.bodies) == 2


def damage(entry: Path, how: str, other: Path) -> None:
    content = entry.read_bytes()
    changed = {
        "empty": b"", "torn": content[: len(content) // 2], "bytes": b"\xff\x00", "list": b"[]", "deep": b"[" * 100_000,
        "flipped": content.replace(b"CORRECT", b"WRONG"), "foreign": other.read_bytes(),
    }[how]  # fmt: skip
    assert changed != content
    entry.write_bytes(changed)


@pytest.mark.parametrize("how", ["empty", "torn", "bytes", "list", "deep", "flipped", "foreign"])
def test_a_damaged_entry_is_replaced_and_never_believed(
    endpoint: Any, make_judge: Any, problem: Problem, tmp_path: Path, how: str
) -> None:
    judge = make_judge(cache_dir=str(tmp_path))
    judge.verify(problem, "Paris")
    (entry,) = tmp_path.rglob("*.json")
    truthful, endpoint.behaviour = endpoint.behaviour, lambda exchange, _: exchange.say("No.\nVERDICT: WRONG")
    judge.verify(problem, "Lyon")
    (other,) = set(tmp_path.rglob("*.json")) - {entry}
    endpoint.behaviour = truthful
    good = entry.read_bytes()
    damage(entry, how, other)
    assert judge.verify(problem, "Paris").outcome is Outcome.CORRECT
    assert len(endpoint.bodies) == 3
    assert entry.read_bytes() == good
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_cache_that_cannot_be_used_is_an_error(ask: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VerifierError, match=r"cache .*file cannot be"):
        ask(cache_dir=str(tmp_path / "file"))
