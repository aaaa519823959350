"""Overlapped scoring: the verdicts of `score`, early, in order, and never a hang."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest

from groupwise.errors import InvariantError, VerifierError
from groupwise.types import Completion, FinishReason, Group, Problem, Prompt, Verdict
from groupwise.verifiers import OverlappedScoring, Request, Verifier, score
from groupwise.verifiers.math import MathVerifier


def group(name: str, *texts: str) -> Group:
    completions = tuple(
        Completion(
            i, np.arange(i + 1), np.zeros(i + 1, np.float32), np.zeros(i + 1, np.float32), FinishReason.STOP, text
        )
        for i, text in enumerate(texts)
    )
    return Group(Prompt(Problem(name, "q", "3"), "q", (1,), ""), completions, step=0, policy_version=0)


GROUPS = [group(str(i), r"\boxed{3}", rf"\boxed{{{i}}}", "nothing") for i in range(7)]


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
