"""Second opinions and explanations: asked for where there are any, and never about an attack on time."""

from collections.abc import Callable

import pytest

from groupwise.checks.audit.judge import Case, differs_for, opinion_for
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers import make_verifier
from groupwise.verifiers.extraction import clipped


@pytest.mark.parametrize(
    ("text", "opinion"),
    [
        (r"\boxed{3}", True), (r"\boxed{\frac{6}{2}}", True), (r"\boxed{4}", False), ("no box", None),
        (r"\boxed{" + "9" * 300 + "}", None),
    ],
)  # fmt: skip
def test_opinions_on_mathematics(case: Callable[..., Case], text: str, opinion: bool | None) -> None:
    assert opinion_for("math", "boxed")(case(True, text)) is opinion
    assert opinion_for("countdown", "boxed")(case(True, text)) is None


def test_numbers_count_as_wrong_only_where_that_is_certain() -> None:
    differs = differs_for("math")
    assert differs("3", "4")
    assert not differs(r"\sqrt{4}", "2")
    assert not differs("1/2", "0.5")
    assert differs_for("countdown")("(3 + 5) × 2", "16")  # as text: no number alone is a solution


def test_a_mathematical_verdict_is_explained() -> None:
    with make_verifier("math") as verifier:
        steps = verifier.explain(
            Problem("p", "q", "391"), r"<think>390?</think>\boxed{391}", Verdict(Outcome.CORRECT, {}, "")
        )
    assert len(steps) > 1
    assert "391" in steps[0]
    assert "correct" in steps[-1]


def test_other_verdicts_are_explained_by_their_evidence() -> None:
    problem, verdict = Problem("p", "q", "3"), Verdict(Outcome.UNPARSABLE, {}, "<think> was opened and not closed")
    for kind in ("answered", "countdown", "knights_knaves"):
        assert make_verifier(kind).explain(problem, "<think>", verdict) == [verdict.evidence]
    read = make_verifier("countdown").explain(problem, "\\boxed{1+2}", Verdict(Outcome.CORRECT, {}, "it equals 3"))
    assert read == ["after the reasoning comes \\boxed{1+2}", "the answer (boxed) is 1+2", "it equals 3"]


def test_texts_are_clipped_and_made_harmless() -> None:
    assert clipped("a\x1b[2J\u202eb\n") == r"a\x1b[2J\u202eb\n"
    assert clipped("") == "(empty)"
    assert clipped("a" * 100 + "b" * 900, 30) == "a" * 20 + " … " + "b" * 10 + " (1,000 characters)"
