"""Composed verdicts: weights, gates, second opinions, the cap, and failures that are never zeros."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import ComposedVerifier, Request, Verifier, VerifierConfig, make_verifier, verifier_config
from groupwise.verifiers.base import Finding, verdict

PROBLEM = Problem("p", "q", "3", language="zh")
GOOD, BAD = "<think>一加二等于三</think>\\boxed{3}", "<think>一加二等于三</think>\\boxed{4}"


class Scripted(Verifier):
    """Says for each text what it is told to say, and remembers what it was asked."""

    def __init__(self, says: dict[str, Verdict | Outcome], config: VerifierConfig | None = None) -> None:
        super().__init__(config)
        self.says, self.asked, self.is_started, self.is_closed = says, list[str](), False, False

    def verify_many(self, requests: Sequence[Request]) -> list[Verdict]:
        self.asked += [request.text for request in requests]
        return [self._verdict(self.says[request.text]) for request in requests]

    def _verdict(self, said: Verdict | Outcome) -> Verdict:
        if isinstance(said, Verdict):
            return said
        return verdict(Finding(said, f"said {said}"), self.config, tags_right=False)

    def start(self) -> None:
        self.is_started = True

    def close(self) -> None:
        self.is_closed = True


def config(**settings: Any) -> VerifierConfig:
    return verifier_config({"kind": "math", **settings})


def second(**dials: Any) -> VerifierConfig:
    return config(parts={"second": {"kind": "verifier", "verifier": "judge", **dials}})


def composed(settings: VerifierConfig, first: Any, other: Any = None) -> tuple[list[Verdict], Scripted, Scripted]:
    alone = settings.model_copy(update={"parts": {}, "cap_wrong": None})
    main, opinion = Scripted(first, alone), Scripted(other or {})
    with ComposedVerifier(main, settings, {"second": opinion}) as verifier:
        verdicts = verifier.verify_many([Request(PROBLEM, text) for text in first])
    return verdicts, main, opinion


def test_only_what_asks_for_composition_is_composed() -> None:
    assert not isinstance(make_verifier(config(format_reward=0.1)), ComposedVerifier)
    assert isinstance(make_verifier(config(cap_wrong=0.1)), ComposedVerifier)
    assert isinstance(make_verifier(config(parts={"s": {"kind": "format", "weight": 1}})), ComposedVerifier)


def test_parts_add_to_the_task_s_verifier() -> None:
    settings = config(correct_reward=2.0, parts={
        "shape": {"kind": "format", "weight": 0.25}, "language": {"kind": "language", "weight": 0.5},
        "overlong": {"kind": "overlong", "weight": 1.0, "cache_tokens": 10},
    })  # fmt: skip
    with make_verifier(settings) as verifier:
        good, bad, loose = verifier.verify_many([
            Request(PROBLEM, GOOD, 95, 100), Request(PROBLEM, BAD, 5, 100), Request(PROBLEM, "the answer: \\boxed{3}")
        ])  # fmt: skip
    assert good.parts == {"accuracy": 2.0, "format": 0.0, "shape": 0.25, "language": 0.5, "overlong": -0.5}
    assert good.measures == {"shape": 1.0, "language": 1.0, "overlong": -0.5}
    assert good.reward == 2.25
    assert bad.parts == {"accuracy": 0.0, "format": 0.0, "shape": 0.25, "language": 0.5, "overlong": 0.0}
    # nobody counted the third one's tokens: its length is not measured
    assert loose.parts == {"accuracy": 2.0, "format": 0.0, "shape": 0.0, "language": 0.0}
    assert (good.outcome, bad.outcome, bad.answer) == (Outcome.CORRECT, Outcome.WRONG, "4")


@pytest.mark.parametrize(
    ("gate", "paid"), [("always", [1, 1, 1, 1]), ("correct", [1, 0, 1, 0]), ("format", [1, 1, 0, 0])]
)
def test_gates(gate: str, paid: list[int]) -> None:
    settings = config(parts={
        "language": {"kind": "language", "weight": 0.5, "gate": gate}, "shape": {"kind": "format", "weight": 0.0}
    })  # fmt: skip
    texts = [GOOD, BAD, "所以答案是 \\boxed{3}", "所以答案是 \\boxed{4}"]
    with make_verifier(settings) as verifier:
        verdicts = verifier.verify_many([Request(PROBLEM, text) for text in texts])
    assert [v.parts["language"] for v in verdicts] == [0.5 * one for one in paid]
    assert [v.measures["language"] for v in verdicts] == [1.0] * 4  # measured whether paid or not


def test_an_added_opinion_is_weighted_and_disagreement_counted() -> None:
    first = {"a": Outcome.CORRECT, "b": Outcome.WRONG, "c": Outcome.CORRECT, "d": Outcome.UNPARSABLE}
    other = {"a": Outcome.CORRECT, "b": Outcome.CORRECT, "c": Outcome.UNPARSABLE, "d": Outcome.WRONG}
    verdicts, _, _ = composed(second(weight=0.5), first, other)
    assert [v.outcome for v in verdicts] == list(first.values())
    assert [v.parts["second"] for v in verdicts] == [0.5, 0.5, 0.0, 0.0]
    assert [v.measures["disagreement/second"] for v in verdicts] == [0.0, 1.0, 1.0, 0.0]
    assert [v.reward for v in verdicts] == [1.5, 0.5, 1.0, 0.0]


def test_a_graded_opinion_earns_its_share_and_keeps_its_measures() -> None:
    graded = Verdict(Outcome.CORRECT, {"rubric": 0.75, "format": 0.0}, "", measures={"rubric": 0.75})
    verdicts, _, _ = composed(second(weight=0.5), {"a": Outcome.WRONG}, {"a": graded})
    assert verdicts[0].parts["second"] == 0.375
    assert verdicts[0].measures == {"second/rubric": 0.75, "second": 0.75, "disagreement/second": 1.0}


def test_second_verifiers_are_set_up_so_that_their_reward_is_their_opinion() -> None:
    settings = config(correct_reward=4.0, format_reward=2.0, parts={
        "second": {"kind": "verifier", "verifier": "countdown", "weight": 0.5}
    })  # fmt: skip
    problem = Problem("p", "q", "1+2", data={"numbers": [1, 2], "target": 3})
    with make_verifier(settings) as verifier:
        found = verifier.verify(problem, "<think>1</think>\\boxed{1+2}")
    assert found.parts == {"accuracy": 4.0, "format": 2.0, "second": 0.5}


@pytest.mark.parametrize("combine", ["all", "any"])
def test_combined_outcomes_by_truth_table(combine: str) -> None:
    cases = list(itertools.product((Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE), repeat=2))
    first = {str(i): one for i, (one, _) in enumerate(cases)}
    other = {str(i): two for i, (_, two) in enumerate(cases)}
    verdicts, _, _ = composed(second(combine=combine), first, other)
    decide = all if combine == "all" else any
    for (one, two), found in zip(cases, verdicts, strict=True):
        is_correct = decide([one is Outcome.CORRECT, two is Outcome.CORRECT])
        assert (found.outcome is Outcome.CORRECT) == is_correct
        assert found.parts == {"accuracy": float(is_correct), "format": 0.0}
        assert found.measures["disagreement/second"] == float((one is Outcome.CORRECT) != (two is Outcome.CORRECT))
        if not is_correct and one is not Outcome.CORRECT:
            assert found.outcome is one  # unparsable stays unparsable


def test_a_refuted_rubric_earns_nothing() -> None:
    rubric = Verdict(Outcome.CORRECT, {"rubric": 0.7, "format": 0.1}, "nice")
    verdicts, _, _ = composed(second(combine="all"), {"a": rubric}, {"a": Outcome.WRONG})
    assert verdicts[0].parts == {"rubric": 0.0, "format": 0.1, "accuracy": 0.0}
    assert verdicts[0].evidence == "nice; second: said wrong"


@pytest.mark.parametrize("dials", [{"weight": 0.5}, {"combine": "all"}, {"combine": "any"}])
@pytest.mark.parametrize("failure", [Outcome.TIMEOUT, Outcome.CRASHED])
def test_a_failed_second_verifier_is_a_failure_and_never_a_zero(dials: dict[str, Any], failure: Outcome) -> None:
    first = {"a": Outcome.CORRECT, "b": Outcome.WRONG, "c": Outcome.CORRECT}
    verdicts, _, _ = composed(second(**dials), first, {"a": failure, "b": failure, "c": Outcome.CORRECT})
    assert [v.outcome for v in verdicts] == [failure, failure, Outcome.CORRECT]
    assert [v.reward is None for v in verdicts] == [True, True, False]
    assert verdicts[0].parts == {}
    assert verdicts[0].evidence == f"second: said {failure}"


def test_a_failed_first_verifier_stays_a_failure_and_asks_nobody() -> None:
    settings = config(cap_wrong=0.1, parts={
        "second": {"kind": "verifier", "verifier": "judge", "combine": "any"}, "shape": {"kind": "format", "weight": 1}
    })  # fmt: skip
    verdicts, _, opinion = composed(settings, {"a": Outcome.TIMEOUT})
    assert verdicts == [Verdict(Outcome.TIMEOUT, {}, "said timeout")]
    assert opinion.asked == []


def test_a_closed_gate_asks_nobody() -> None:
    verdicts, main, opinion = composed(
        second(weight=0.5, gate="correct"), {"a": Outcome.WRONG, "b": Outcome.CORRECT}, {"b": Outcome.CORRECT}
    )
    assert opinion.asked == ["b"]
    assert [v.parts["second"] for v in verdicts] == [0.0, 0.5]
    assert "disagreement/second" not in verdicts[0].measures
    assert main.is_closed
    assert opinion.is_closed


def test_starting_starts_every_verifier() -> None:
    main, other = Scripted({}), Scripted({})
    ComposedVerifier(main, second(), {"second": other}).start()
    assert main.is_started
    assert other.is_started


@pytest.mark.parametrize(
    ("outcome", "earned", "cap", "reward"),
    [(Outcome.WRONG, 0.5, 0.2, 0.2), (Outcome.UNPARSABLE, 0.5, 0.0, 0.0), (Outcome.WRONG, 0.1, 0.2, 0.1),
     (Outcome.CORRECT, 1.5, 0.2, 1.5)],
)  # fmt: skip
def test_the_cap_is_a_part_of_its_own(outcome: Outcome, earned: float, cap: float, reward: float) -> None:
    verdicts, _, _ = composed(config(cap_wrong=cap), {"a": Verdict(outcome, {"tests": earned}, "")})
    assert verdicts[0].parts == pytest.approx({"tests": earned, "cap": reward - earned})
    assert verdicts[0].reward == pytest.approx(reward)


TEXTS = st.sampled_from(
    [GOOD, BAD, "", "所以答案是 \\boxed{3}", "<think>想</think><think>想</think>\\boxed{3}", 9 * "想 "]
)


@given(
    st.lists(TEXTS, max_size=4), st.floats(0, 2), st.floats(0, 0.99), st.sampled_from(["always", "correct", "format"])
)
def test_nothing_without_a_correct_answer_earns_more_than_the_cap(
    texts: list[str], weight: float, cap: float, gate: str
) -> None:
    settings = config(cap_wrong=cap, parts={
        "shape": {"kind": "format", "weight": weight}, "language": {"kind": "language", "weight": weight, "gate": gate},
        "loops": {"kind": "repetition", "weight": weight, "gate": gate},
    })  # fmt: skip
    with make_verifier(settings) as verifier:
        verdicts = verifier.verify_many([Request(PROBLEM, text) for text in texts])
        one_by_one = [verifier.verify(PROBLEM, text) for text in texts]
    assert verdicts == one_by_one
    for found in verdicts:
        assert found.reward == sum(found.parts.values())
        if found.outcome is not Outcome.CORRECT:
            assert found.reward <= cap + 1e-9
