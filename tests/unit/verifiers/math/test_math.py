"""The mathematical verifier: hand cases, other people's cases, attacks, garbage, and what a verdict earns."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import Request, make_verifier
from groupwise.verifiers.math import MathVerifier
from groupwise.verifiers.workers import WorkerPool

SHARED = Path(__file__).parents[4] / "shared/data"
CASES = SHARED / "math_verifier_cases/cases.jsonl"
PROBES = SHARED / "attack_probes/math.jsonl"

# Core cases that go the strict way, each for a stated reason.
KNOWN_FALSE_NEGATIVES = {
    "0135"  # 2.6667 for 8/3: four places are not enough
}


def judge(verifier: MathVerifier, reference: str, answer: str) -> Verdict:
    return verifier.verify(Problem("p", "q", reference), f"<think>...</think>\\boxed{{{answer}}}")


def test_canonical_answers_join_spellings_for_majority_votes(verifier: MathVerifier) -> None:
    answers = {judge(verifier, "9", text).answer for text in ("0.5", r"\frac12", "1/2", r"\dfrac{2}{4}", "$.5$")}
    assert answers == {"1/2"}
    assert judge(verifier, "9", "").answer is None


def test_an_unreadable_reference_is_never_a_zero(verifier: MathVerifier) -> None:
    for reference in ("", r"\frac{1}{", r"\gcd(m, n)", "9^{9^{9^9}}"):
        verdict = judge(verifier, reference, "5")
        assert verdict.outcome is Outcome.CRASHED
        assert verdict.reward is None
        assert "reference" in verdict.evidence


def test_rewards_and_the_format_part() -> None:
    verifier = MathVerifier(MathVerifier.Config(kind="math", correct_reward=2.0, format_reward=0.25))
    problem = Problem("p", "q", "3")
    for text, parts in [
        (r"<think>a</think>\boxed{3}", (2.0, 0.25)), (r"<think>a</think>\boxed{4}", (0.0, 0.25)),
        (r"\boxed{3}", (2.0, 0.0)), (r"<think></think><think></think>\boxed{3}", (2.0, 0.0)),
        ("<think>a</think>", (0.0, 0.0)), (r"<think>\boxed{3}", (0.0, 0.0)), ("step step because wait", (0.0, 0.0)),
    ]:  # fmt: skip
        verdict = verifier.verify(problem, text)
        assert (verdict.parts["accuracy"], verdict.parts["format"]) == parts, text
        assert verdict.reward == sum(parts), text


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    assert MathVerifier().verify(Problem("p", "q", "3"), text).outcome is Outcome.UNPARSABLE


@pytest.mark.parametrize(
    "garbage",
    ["\\boxed{" * 20_000, "\\boxed{" + "{" * 5000 + "3" + "}" * 5001, "9" * 100_000, "$" * 100_000, "\ud800\x00\u202e",
     "\\boxed{" + "9" * 9000 + "}", "\\boxed{" + "\\frac" * 1500 + "}", "\\boxed{" + "∞×" * 900 + "}", "\\boxed{\\}",
     "\\boxed{" + "x" * 100_000 + "}", "\\boxed{\\text{" + "a " * 4000 + "}}", "\\boxed{" + "1 " * 4000 + "}"],
)  # fmt: skip
def test_garbage_is_judged_quickly(verifier: MathVerifier, garbage: str) -> None:
    start = time.monotonic()
    verdict = verifier.verify(Problem("p", "q", "3"), garbage)
    assert verdict.outcome in (Outcome.UNPARSABLE, Outcome.WRONG)
    assert time.monotonic() - start < 15


def test_equal_pairs_are_compared_once(
    verifier: MathVerifier, symbolic_workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, asked, compare = Problem("p", "q", r"\sin^2 u + 1"), [], symbolic_workers.map

    def watched(requests: Any, timeout_s: float) -> Any:
        asked.extend(requests)
        return compare(requests, timeout_s)

    monkeypatch.setattr(symbolic_workers, "map", watched)
    verdicts = verifier.verify_many([Request(problem, r"\boxed{2 - \cos^2 u}")] * 500)
    assert {v.outcome for v in verdicts} == {Outcome.CORRECT}
    assert len(asked) == 1


def test_make_verifier_names_what_there_is() -> None:
    assert isinstance(make_verifier("math"), MathVerifier)
    with pytest.raises(Exception, match=r"known are .*countdown, .*math"):
        make_verifier("maths")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def response(row: dict[str, Any]) -> str:
    """The prediction in a box, unless it brings one or is prose (which is not our contract: no box, no answer)."""
    text = row["pred"].strip()
    bare = re.fullmatch(r"\$\$?[^$]*\$\$?|[-0-9.,]+|-?\\frac\{\d+\}\{\d+\}|[0-9]\*?x.*", text, re.DOTALL)
    return f"\\boxed{{{text}}}" if row["wrap"] == "boxed" or ("\\boxed" not in text and bare) else text


@pytest.mark.skipif(not CASES.exists(), reason="the collected cases are not here")
def test_core_cases_have_no_false_positive_and_only_known_false_negatives(verifier: MathVerifier) -> None:
    false_positives: set[str] = set()
    false_negatives: set[str] = set()
    prose = 0
    for row in (row for row in rows(CASES) if row["tier"] == "core"):
        name, text = row["id"].removeprefix("mvc-"), response(row)
        verdict = verifier.verify(Problem(name, "q", row["gold"]), text)
        assert verdict.outcome.judged, row
        if "\\boxed" not in text:
            prose += 1
            assert verdict.outcome is Outcome.UNPARSABLE
        elif (verdict.outcome is Outcome.CORRECT) != row["expected"]:
            (false_negatives if row["expected"] else false_positives).add(name)
    assert false_positives == set()
    assert false_negatives == KNOWN_FALSE_NEGATIVES
    assert prose == 35


@pytest.mark.skipif(not PROBES.exists(), reason="the attack probes are not here")
def test_attacks_fail(verifier: MathVerifier) -> None:
    for row in rows(PROBES):
        verdict = verifier.verify(Problem(row["id"], "q", row["gold"]), row["response"])
        assert verdict.outcome.judged, row
        if row["expected"] is not None:
            assert (verdict.outcome is Outcome.CORRECT) == row["expected"], row


@pytest.mark.parametrize(
    ("reference", "text", "said"),
    [
        ("3", r"<think>a</think>\boxed{3.0}", ["read (boxed): '3.0'", "answer '3.0'", "plain comparison", "correct"]),
        ("x^2", r"\boxed{x\cdot x}", ["symbolic comparison", r"correct: 'x\\cdot x' equals 'x^2'"]),
        ("3", "no box", ["decided by: extraction", "unparsable: no answer"]),
        ("3", r"\boxed{9^{9^{9^9}}}", ["guards before parsing", "too large"]),
        ("3", "\\boxed{3\u200b}", ["guards on the text", "invisible"]),
        ("", r"\boxed{3}", ["the reference", "crashed"]),
    ],
)
def test_explanations_tell_the_verdict_step_by_step(reference: str, text: str, said: list[str]) -> None:
    with MathVerifier() as verifier:
        told = "\n".join(verifier.explain(Problem("p", "q", reference), text, Verdict(Outcome.WRONG, {}, "")))
    for words in said:
        assert words in told
