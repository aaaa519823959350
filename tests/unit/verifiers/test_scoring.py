"""Scoring gives every completion its verdict, also beside sampling, and stops when the verifier fails."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from groupwise.errors import InvariantError, VerifierError
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, ScoredGroup, Verdict
from groupwise.verifiers import (
    OverlappedScoring,
    Request,
    Verifier,
    check_failures,
    make_verifier,
    part_statistics,
    score,
    spot_check,
)
from groupwise.verifiers.math import MathVerifier


def group(problem_id: str, reference: str, texts: Sequence[str], prefill: str = "") -> Group:
    prompt = Prompt(Problem(problem_id, "q", reference), f"q{prefill}", (1,), prefill)
    ids, zeros = np.zeros(1, np.int64), np.zeros(1, np.float32)
    completions = [Completion(i, ids, zeros, zeros, FinishReason.STOP, text) for i, text in enumerate(texts)]
    return Group(prompt, tuple(completions), step=0, policy_version=0)


def test_order_and_prefill() -> None:
    groups = [
        group("a", "3", [r"ok</think>\boxed{3}", r"ok</think>\boxed{4}", r"\boxed{3}"], prefill="<think>"),
        group("b", "5", [r"\boxed{5}", "nothing"]),
    ]
    scored = score(groups, MathVerifier())
    assert [s.group.prompt.problem.id for s in scored] == ["a", "b"]
    # the third completion never closes the reasoning that the prefill opened
    assert [[v.outcome.value for v in s.verdicts] for s in scored] == [
        ["correct", "wrong", "unparsable"], ["correct", "unparsable"],
    ]  # fmt: skip
    assert scored[0].rewards == (1.0, 0.0, 0.0)
    check_failures(scored, 0.0)  # none failed


def scored_with(*outcomes: Outcome) -> ScoredGroup:
    verdicts = tuple(Verdict(outcome, {}, f"evidence of {outcome}") for outcome in outcomes)
    return ScoredGroup(group("a", "3", [""] * len(outcomes)), verdicts)


def test_failures_stop_above_the_share_and_not_at_it() -> None:
    scored = [scored_with(Outcome.CORRECT, Outcome.WRONG), scored_with(Outcome.TIMEOUT, Outcome.UNPARSABLE)]
    check_failures(scored, 0.25)
    said = r"1 of 4 .*1 timeout.*0\.25.*max_failure_share = 0\.2.*evidence of timeout"
    with pytest.raises(VerifierError, match=said):
        check_failures(scored, 0.2)
    check_failures([], 0.0)
    with pytest.raises(VerifierError, match="2 crashed, 1 timeout"):
        check_failures([scored_with(Outcome.CRASHED, Outcome.TIMEOUT, Outcome.CRASHED)], 0.05)


def test_a_verifier_that_loses_a_verdict_is_an_error() -> None:
    class Lossy(Verifier):
        def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
            return []

    with pytest.raises(VerifierError, match="0 verdicts for 1 completions"):
        score([group("a", "3", ["x"])], Lossy())


class Odd(Verifier):
    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        return [Verdict("correct", {"accuracy": float(request.text)}, "") for request in requests]


def test_a_part_that_is_no_finite_number_is_a_failure_of_the_verifier() -> None:
    scored = score([group("a", "3", ["1", "nan", "inf"])], Odd())
    assert scored[0].rewards == (1.0, None, None)
    with pytest.raises(VerifierError, match=r"2 crashed.*its parts of the reward are {'accuracy': nan}; finite"):
        check_failures(scored, 0.05)


def test_part_statistics_by_hand() -> None:
    verdicts = (
        Verdict(Outcome.CORRECT, {"accuracy": 1.0, "tone": 0.1}, "", measures={"tone": 1.0, "disagreement/judge": 1.0}),
        Verdict(Outcome.WRONG, {"accuracy": 0.0, "tone": 0.0}, "", measures={"tone": 0.5, "disagreement/judge": 1.0}),
        Verdict(Outcome.UNPARSABLE, {"accuracy": 0.0, "tone": 0.2}, "", measures={"disagreement/judge": 0.0}),
        Verdict(Outcome.UNPARSABLE, {"accuracy": 1.0, "tone": 0.1}, ""),
        Verdict(Outcome.CRASHED, {}, "", measures={"tone": 9.0}),
    )
    found = part_statistics([ScoredGroup(group("a", "3", [""] * 5), verdicts)])
    assert found == pytest.approx({
        "part/accuracy/mean": 0.5, "part/accuracy/std": 0.5,
        "part/tone/mean": 0.1, "part/tone/std": 0.1 / 2**0.5,
        "measure/tone/mean": 0.75, "disagreement/judge": 2.0,
    })  # fmt: skip
    assert all(type(value) is float for value in found.values())
    assert part_statistics([]) == part_statistics([scored_with(Outcome.TIMEOUT)]) == {}


def test_requests_say_lengths_limit_and_prefill() -> None:
    seen: list[Request] = []

    class Watching(MathVerifier):
        def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
            seen.extend(requests)
            return super().verify_many(requests)

    score([group("a", "3", ["x"], prefill="<think>")], Watching(), max_tokens=7)
    assert seen[0][:8] == Request(seen[0].problem, "<think>x", 1, 7, False, "<think>")[:8]
    assert seen[0].group is not None
    assert seen[0].completion is seen[0].group.completions[0]


def test_a_spot_check_sees_verdicts_given_to_the_wrong_completions() -> None:
    texts = [rf"\boxed{{{number}}}" for number in (3, 4, 3, 5)]
    verifier = make_verifier("math")
    scored = score([group("a", "3", texts)], verifier)
    spot_check(scored, verifier, None, 0)
    rolled = [ScoredGroup(one.group, (*one.verdicts[1:], one.verdicts[0])) for one in scored]
    with pytest.raises(InvariantError, match="wrong completions"):
        spot_check(rolled, verifier, None, 0)


GROUPS = [group(str(i), "3", [r"\boxed{3}", rf"\boxed{{{i}}}", "nothing"]) for i in range(7)]


class Watched(Verifier):
    """Judges as the mathematical verifier does; tells what it was asked, and waits or fails when told to."""

    def __init__(self, seconds: float = 0.0, fails: bool = False, until: threading.Event | None = None) -> None:
        super().__init__()
        self._inner, self._seconds, self._fails, self._until = MathVerifier(), seconds, fails, until
        self.requests: list[Request] = []
        self.threads: set[int] = set()
        self.began = threading.Event()

    def go_on(self) -> None:
        assert self._until is not None
        self._until.set()

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        self.requests += requests
        self.threads.add(threading.get_ident())
        self.began.set()
        time.sleep(self._seconds)
        if self._until is not None:
            self._until.wait(20.0)
        if self._fails:
            raise VerifierError("the verifier is broken")
        return self._inner.verify_many(requests)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_verdicts_are_those_of_score_in_the_order_asked_for(seconds: float) -> None:
    verifier = Watched(seconds)
    with OverlappedScoring(verifier, max_tokens=9) as scoring:
        for one in reversed(GROUPS):
            scoring.submit(one)
            time.sleep(seconds / 3)
        scored = scoring.result(GROUPS)
    expected = score(GROUPS, MathVerifier(), max_tokens=9)
    assert [one.group for one in scored] == GROUPS
    assert [one.verdicts for one in scored] == [one.verdicts for one in expected]
    assert len(verifier.requests) == sum(len(one.completions) for one in GROUPS)  # each once
    assert {request.max_tokens for request in verifier.requests} == {9}
    assert threading.get_ident() not in verifier.threads


def test_no_groups() -> None:
    with OverlappedScoring(Watched()) as scoring:
        assert scoring.result([]) == []


def test_work_begins_before_the_result_is_asked_for_and_submitting_does_not_wait() -> None:
    verifier = Watched(until=threading.Event())
    with OverlappedScoring(verifier) as scoring:
        scoring.submit(GROUPS[0])
        assert verifier.began.wait(20.0)
        for one in GROUPS[1:]:
            scoring.submit(one)
        assert len(verifier.requests) == 3  # one group's; the others wait
        verifier.go_on()
        scoring.result(GROUPS)


def test_what_the_verifier_raises_is_raised_where_the_result_is_asked_for() -> None:
    with OverlappedScoring(Watched(fails=True)) as scoring:
        scoring.submit(GROUPS[0])
        time.sleep(0.05)
        scoring.submit(GROUPS[1])  # to a thread that has ended
        with pytest.raises(VerifierError, match="the verifier is broken"):
            scoring.result(GROUPS[:2])


def test_a_group_that_was_never_submitted_is_an_error() -> None:
    with OverlappedScoring(Watched()) as scoring:
        scoring.submit(GROUPS[0])
        with pytest.raises(InvariantError, match="groups of 1, 2: they were never submitted"):
            scoring.result(GROUPS[:3])


def interrupted(scoring: OverlappedScoring, verifier: Watched) -> None:
    """Generation that the keyboard interrupts while the first group is being verified."""
    with scoring:
        scoring.submit(GROUPS[0])
        assert verifier.began.wait(20.0)
        for one in GROUPS[1:]:
            scoring.submit(one)
        threading.Timer(0.2, verifier.go_on).start()  # the block is left first
        raise KeyboardInterrupt


def test_an_interrupt_while_generating_awaits_what_is_under_way_and_drops_what_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("groupwise.verifiers.scoring.CLOSE_S", 30.0)
    verifier = Watched(until=threading.Event())
    scoring = OverlappedScoring(verifier)
    with pytest.raises(KeyboardInterrupt):
        interrupted(scoring, verifier)
    assert not scoring._thread.is_alive()
    assert len(verifier.requests) == 3  # one group's


def test_closing_does_not_wait_for_a_verifier_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.verifiers.scoring.CLOSE_S", 0.05)
    verifier = Watched(until=threading.Event())
    with OverlappedScoring(verifier) as scoring:
        scoring.submit(GROUPS[0])
        assert verifier.began.wait(20.0)
    assert scoring._thread.is_alive()  # still verifying
    assert scoring._thread.daemon  # so the process may end
    verifier.go_on()
    scoring._thread.join()
