"""Open-ended problems, and requests that go to the verifier that their problem names."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.types import Completion, FinishReason, Group, Outcome, Problem, Prompt, Verdict
from groupwise.verifiers import VERIFIERS, Request, Verifier, make_verifier, score, spot_check
from groupwise.verifiers.unjudged import AnsweredVerifier

OPEN = Problem("open", "Should I give Anna a cup or a pen?", "Anna", open_ended=True, verifier="answered")
SUM = Problem("sum", "What is 1 + 2?", "3", verifier="number")
GAME = Problem("game", "Reach 3.", "1+2", data={"numbers": [1, 2], "target": 3}, verifier="countdown")
TEXTS = ("<think>a</think>A cup.", r"<think>a</think>\boxed{3}", r"<think>a</think>\boxed{1+2}", "<think>a", "")
REQUESTS = [Request(problem, text) for problem in (OPEN, SUM, GAME) for text in TEXTS]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>Anna may like a cup.</think>Give Anna a cup.", Outcome.CORRECT),
        ("<think></think>\\boxed{Anna}", Outcome.CORRECT), ("<think>气人</think>送小红", Outcome.CORRECT),
        ("Give Anna a cup.", Outcome.CORRECT), ("<think>Anna</think>", Outcome.UNPARSABLE),
        ("<think>Anna</think> \n.!", Outcome.UNPARSABLE), ("<think>Give Anna a cup.", Outcome.UNPARSABLE),
        ("Give Anna a cup.</think>", Outcome.UNPARSABLE), ("Anna</think>Give Anna a cup.", Outcome.UNPARSABLE),
        ("<think>a</think>b</think>c", Outcome.UNPARSABLE), ("<think><think>a</think>c", Outcome.UNPARSABLE),
        ("</think>a<think>b", Outcome.UNPARSABLE), ("", Outcome.UNPARSABLE), (" \n", Outcome.UNPARSABLE),
    ],
)  # fmt: skip
def test_an_open_question_is_answered_or_not(text: str, outcome: Outcome) -> None:
    config = {"kind": "answered", "correct_reward": 2.0, "format_reward": 0.5}
    verdict = make_verifier(config).verify(OPEN, text)
    assert verdict.outcome is outcome
    assert verdict.answer is None
    assert verdict.parts["accuracy"] == (2.0 if outcome is Outcome.CORRECT else 0.0)
    assert verdict.parts["format"] == (0.5 if text.count("think>") == 2 and text.startswith("<think>") else 0.0)
    assert ("no rule can judge more" in verdict.evidence) == (outcome is Outcome.CORRECT)


@given(st.text(alphabet="<think>/a .", max_size=60))
def test_no_text_breaks_it(text: str) -> None:
    assert AnsweredVerifier().verify(OPEN, text).outcome in (Outcome.CORRECT, Outcome.UNPARSABLE)


@given(st.permutations(range(len(REQUESTS))), st.integers(0, len(REQUESTS)))
def test_each_verdict_is_that_of_the_problem_s_own_verifier(order: list[int], count: int) -> None:
    requests = [REQUESTS[place] for place in order[:count]]
    with make_verifier("routed") as verifier:
        found = verifier.verify_many(requests)
    own = [make_verifier(request.problem.verifier) for request in requests]
    assert found == [one.verify(*request[:2]) for one, request in zip(own, requests, strict=True)]


class Counting(Verifier):
    calls: ClassVar[list[int]]
    closed = 0
    is_repeatable = True

    @property
    def repeatable(self) -> bool:
        return self.is_repeatable

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        type(self).calls.append(len(requests))
        return [Verdict(Outcome.CORRECT, {"accuracy": 1.0}, "counted") for _ in requests]

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    counting = type("Fresh", (Counting,), {"calls": []})
    find = VERIFIERS.find
    monkeypatch.setattr(VERIFIERS, "find", lambda kind: counting if kind == "number" else find(kind))
    return counting


def test_every_verifier_gets_its_requests_at_once_and_is_closed(counting: type[Counting]) -> None:
    with make_verifier("routed") as verifier:
        verifier.verify_many([Request(SUM, "a"), Request(OPEN, "b"), Request(SUM, "c")])
        verifier.verify_many([Request(OPEN, "b")])
        assert counting.calls == [2]
        assert counting.closed == 0
    assert counting.closed == 1


def test_it_is_repeatable_if_all_are(counting: type[Counting]) -> None:
    counting.is_repeatable = False
    parts = {"kind": "routed", "parts": {"form": {"kind": "format", "weight": 0.1}}, "steps": "equations"}
    for config in ("routed", parts):
        with make_verifier(config) as verifier:  # type: ignore[arg-type]
            verifier.verify_many([Request(OPEN, "b")])
            assert verifier.repeatable
            verifier.verify_many([Request(SUM, "b")])
            assert not verifier.repeatable


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "names the verifier '';.* of its task"),
        ("numbers", "there is no verifier 'numbers'; did you mean 'number'"), ("routed", "names the verifier 'routed'"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_its_problem(name: str, said: str) -> None:
    problem = Problem("p7", "?", "3", verifier=name)
    with make_verifier("routed") as verifier, pytest.raises(ConfigError, match=f"problem p7.*{said}"):
        verifier.verify_many([Request(SUM, "a"), Request(problem, "b")])


def test_parts_are_paid_for_every_kind_of_problem() -> None:
    config = {
        "kind": "routed",
        "correct_reward": 1,
        "parts": {"form": {"kind": "format", "weight": 0.25}, "tongue": {"kind": "language", "weight": 0.5}},
    }
    with make_verifier(config) as verifier:
        general, reasoning, wrong = verifier.verify_many(
            [
                Request(OPEN, "<think>Anna may like a cup more.</think>Give Anna a cup, my friend."),
                Request(SUM, r"<think>1+2=3.</think>\boxed{3}"),
                Request(SUM, r"<think>1+2=4.</think>\boxed{4} So the answer is 4, my friend."),
            ]
        )
    assert general.parts == {"accuracy": 1.0, "format": 0.0, "form": 0.25, "tongue": 0.5}
    assert reasoning.parts == {"accuracy": 1.0, "format": 0.0, "form": 0.25, "tongue": 0.0}
    assert wrong.parts == {"accuracy": 0.0, "format": 0.0, "form": 0.25, "tongue": 0.5}


def group(problem: Problem) -> Group:
    ids, zeros = np.zeros(1, np.int64), np.zeros(1, np.float32)
    completions = [Completion(i, ids, zeros, zeros, FinishReason.STOP, text) for i, text in enumerate(TEXTS)]
    return Group(Prompt(problem, problem.question, (1,)), tuple(completions), 0, 0)


def test_groups_of_both_kinds_are_scored_and_checked_again() -> None:
    with make_verifier({"kind": "routed", "parts": {"form": {"kind": "format", "weight": 1}}}) as verifier:
        scored = score([group(OPEN), group(SUM), group(GAME)], verifier)
        spot_check(scored, verifier, None, "test")
    assert [[verdict.outcome is Outcome.CORRECT for verdict in one.verdicts] for one in scored] == [
        [True, True, True, False, False],
        [False, True, False, False, False],
        [False, False, True, False, False],
    ]
