"""Every verifier of logic and structure, on every kind of garbage: no exception, no reward, no long wait."""

import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupwise.tasks import TASKS, make_task
from groupwise.types import Outcome, Problem
from groupwise.verifiers import Verifier, make_verifier

NAMES = ("instructions", "json_extraction", "knights_knaves")
LARGE = 100_000


@cache
def problem_of(name: str) -> Problem:
    return make_task({"kind": name, "num_problems": 3, "num_eval_problems": 1}).problems("train")[1]


@cache
def verifier_of(name: str, extraction: str = "boxed") -> Verifier:
    return make_verifier({"kind": TASKS.find(name).verifier, "extraction": extraction})


@pytest.mark.parametrize("name", [name for name in NAMES if name != "json_extraction"])
@pytest.mark.parametrize(
    "answer",
    [
        "{gold}", "I think {gold}", "\\boxed{{}}", "<think>\\boxed{{{gold}}}", "<think>\\boxed{{{gold}}}</think>",
        "\\boxed{{{gold}}} or rather \\boxed{{nothing}}", "\\boxed{{nothing}}. Hence \\boxed{{{gold}}}",
        "\\boxed{{{gold}", "<answer>{gold}</answer>", "\\boxed{{?!}}",
    ],
)  # fmt: skip
def test_no_reward_without_one_answer_in_its_place(name: str, answer: str) -> None:
    problem = problem_of(name)
    verdict = verifier_of(name).verify(problem, answer.format(gold=problem.reference))
    assert verdict.outcome in (Outcome.UNPARSABLE, Outcome.WRONG)
    assert verdict.reward == 0.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    ["<answer>{gold}</answer><answer>?</answer>", "<answer><answer>{gold}</answer></answer>", "<answer>{gold}",
     "<answer></answer>", "<answer>?</answer> {gold}", "<answer>{gold}</answer></think>"],
)  # fmt: skip
def test_tags_several_times_earn_nothing(name: str, text: str) -> None:
    problem = problem_of(name)
    verifier = verifier_of(name, "tag")
    assert verifier.verify(problem, f"<answer>{problem.reference}</answer>").outcome is Outcome.CORRECT
    verdict = verifier.verify(problem, text.replace("{gold}", problem.reference))
    assert verdict.outcome in (Outcome.UNPARSABLE, Outcome.WRONG)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "instructions"])
@pytest.mark.parametrize("pattern", ["{0}, {0}x", "{0} or {1}", "{0} {0}", "{0}=24=25", "not {0}", "{0}**1", "{0}//1",
                                     "_{0}", "{0}_", "0{0}", "{0}?", "\u202e{0}", "{0}\u200b", "５{0}"])  # fmt: skip
def test_a_right_answer_with_something_glued_to_it_earns_nothing(name: str, pattern: str) -> None:
    problem = problem_of(name)
    answer = pattern.format(problem.reference, "1")
    verdict = verifier_of(name).verify(problem, f"\\boxed{{{answer}}}")
    assert verdict.outcome in (Outcome.UNPARSABLE, Outcome.WRONG), verdict


PIECES = [
    "1", "9", "a", " ", "\n", "{", "}", "[", '"', "\\", '\\"', "\\text{", ":", ";", ",", ".", "!", "(", "- ", "is ",
    "a is a knight, ", "and ", "1: a, ", '{"a": ', "[1, ", "1e", "é", "\u0301", "=", "(1+", "1:1 ", "\n\n", "a'", ". ",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_large_answers_end_soon(name: str) -> None:
    """Each of 34 pieces repeated to just below the limit of what is read, with three ends, and to 100 KB."""
    problem, verifier = problem_of(name), verifier_of(name)
    start = time.process_time()
    for piece in PIECES:
        for size, end in ((9_900, "}"), (9_900, "x}"), (9_900, ""), (LARGE, "}")):
            verdict = verifier.verify(problem, f"\\boxed{{{piece * (size // len(piece))}{end}")
            assert verdict.outcome.judged, (piece, verdict)
    assert time.process_time() - start < 10  # over 130 answers


WORDS = st.sampled_from(
    [*PIECES, "Anna", "knave", "or", "tea", "null", "NaN", "0", "-", "e", "/", "÷", "\ud800", "\x00"]
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS | st.text(max_size=5), max_size=30).map("".join))
def test_no_text_raises_or_crashes_the_verifier(name: str, text: str) -> None:
    for completion in (text, f"\\boxed{{{text}}}"):
        assert verifier_of(name).verify(problem_of(name), completion).outcome.judged
    assert verifier_of(name, "tag").verify(problem_of(name), f"<answer>{text}</answer>").outcome.judged


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_changed_reference_is_read_without_a_crash(name: str, data: st.DataObject) -> None:
    """Close to the right form, where readers go furthest."""
    reference = problem_of(name).reference
    start = data.draw(st.integers(0, len(reference)))
    end = data.draw(st.integers(start, len(reference)))
    changed = reference[:start] + data.draw(st.text(max_size=4) | st.sampled_from(PIECES)) + reference[end:]
    verdict = verifier_of(name, "tag").verify(problem_of(name), f"<answer>{changed}</answer>")
    assert verdict.outcome.judged
