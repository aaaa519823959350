"""Steps: where a text is cut, and equations checked exactly."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from groupwise.errors import ConfigError
from groupwise.types import Problem
from groupwise.verifiers import make_verifier
from groupwise.verifiers.steps import (
    DECIDED,
    MAX_STEPS,
    Step,
    equation_steps,
    inner_ends,
    step_ends,
    steps_after,
    value,
)

TEXTS = st.text(alphabet="12+= .\nab。</think>", max_size=40)
KINDS = st.sampled_from(["equation", "sentence", "newline", r"\d+", " *\n"])


def split_steps(text: str, step: str) -> list[str]:
    ends = step_ends(text, step)
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(TEXTS, KINDS)
def test_joined_they_are_the_text_and_none_is_empty(text: str, step: str) -> None:
    steps = steps_after("", text, step)
    assert "".join(steps) == text
    assert all(steps)


@given(TEXTS, TEXTS, st.sampled_from(["sentence", "newline"]))
def test_what_follows_moves_no_end_before_it(text: str, more: str, step: str) -> None:
    inner = [end for end in step_ends(text + "a", step)[:-1] if end <= len(text)]
    assert step_ends(text + "a" + more, step)[: len(inner)] == inner


@given(TEXTS)
def test_equations_end_where_the_process_advantage_has_them(text: str) -> None:
    ends = step_ends(text, "equation")
    assert [step.end for step in equation_steps(text) if text[step.end :].strip()] == ends[:-1]


def test_examples() -> None:
    text = "<think>47×80=3760. 47×6=282.\nSo 3760+282=4042.</think>\nThe answer is 4042. Done."
    assert steps_after("", text, "sentence") == [
        "<think>47×80=3760. ", "47×6=282.\n", "So 3760+282=4042.</think>\nThe answer is 4042. Done.",
    ]  # fmt: skip
    assert steps_after("", "One.\n\n  Two\n", "newline") == ["One.\n", "\n  Two\n"]
    assert steps_after("", "先算2。再算3。", "sentence") == ["先算2。", "再算3。"]
    assert steps_after("", "", "newline") == []


def test_there_is_a_bound() -> None:
    assert len(step_ends("a\n" * 10_000, "newline")) == MAX_STEPS + 1


@pytest.mark.parametrize(
    ("step", "message"), [("(", "no regular expression"), ("a*", "empty text"), ("", "empty text")]
)
def test_what_is_no_boundary_is_an_error(step: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        step_ends("text", step)
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(Step).validate_python(step)


@given(TEXTS, st.sampled_from([*DECIDED, r"\d+", " *\n", r"\n\n+", r"a(?=b)", r"\.$"]))
def test_an_end_that_was_seen_is_never_taken_back(text: str, step: str) -> None:
    ends = inner_ends(text, step)
    for read in range(len(text) + 1):
        assert inner_ends(text[:read], step) == [end for end in ends if end <= read]


@given(TEXTS, st.sampled_from(DECIDED))
def test_inner_ends_are_those_that_labels_have(text: str, step: str) -> None:
    labelled = step_ends(text, step)[:-1]
    ends = inner_ends(text, step)
    assert ends[: len(labelled)] == labelled
    assert all(not text[end:].strip() for end in ends[len(labelled) :])  # labels join what only white space follows


def test_an_equation_is_taken_back_by_what_follows() -> None:
    assert inner_ends("1+1=1", "equation") == [5]
    assert inner_ends("1+1=12", "equation") == [6]
    assert inner_ends("a\n" * 500, r"\n")[-1] == 2 * MAX_STEPS


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ("45×70=3150. 45×7=315. 3150+315=3465.", [1, 1, 1]),
        ("45×70=3150. 45×7=314. 3150+314=3464.", [1, 0, 1]),  # a wrong step, then right from it
        ("2 + 3 = 5 = 6 - 1", [1]),
        ("2 + 3 = 5 = 6", [0]),
        ("(2+3)×4=20", [1]),
        ("7÷2=3.5", [1]),
        ("1/3=0.3", [0]),
        ("5/0=0", [0]),
        ("x = 3 and so on, no equations", []),
        ("7=7. (3 + 4) = (3+4). 5=5.0. 3+4=4+3.", [0, 0, 0, 1]),  # what computes nothing
        ("(1+2=3", [0]),  # an open parenthesis has no value
    ],
)
def test_by_hand(text: str, rewards: list[int]) -> None:
    assert [step.reward for step in equation_steps(text)] == rewards


@given(a=st.integers(0, 999), b=st.integers(0, 999), c=st.integers(1, 99))
def test_values_are_exact(a: int, b: int, c: int) -> None:
    assert value(f"{a}+{b}×{c}") == a + b * c
    assert value(f"({a}-{b})/{c}") * c == a - b
    assert [step.reward for step in equation_steps(f"{a}+{b}={a + b}. {a}+{b}={a + b + 1}.")] == [1, 0]


@given(st.text(alphabet="0123456789+-×=(). \n", max_size=300))
def test_no_text_raises(text: str) -> None:
    ends = [step.end for step in equation_steps(text)]
    assert ends == sorted(set(ends))


@pytest.mark.parametrize("piece", ["1+", "(", "1=", "((1", "1 ", "9" * 13, "1+1=2. "])
def test_long_texts_end_soon(piece: str) -> None:
    began = time.process_time()
    equation_steps(piece * (100_000 // len(piece)))
    assert time.process_time() - began < 5


def test_the_answer_is_the_last_step() -> None:
    with make_verifier({"kind": "math", "steps": "equations"}) as verifier:
        text = r"<think>2×3=6. 6+1=8.</think>\boxed{7}"
        verdict = verifier.verify(Problem("p", "q", "7"), text)
    assert [step.reward for step in verdict.steps] == [1.0, 0.0, 1.0]
    assert verdict.steps[-1].end == len(text)
