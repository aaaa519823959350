"""Steps: joined they are the text, and where sentences and lines end is decided by the text before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from groupwise.errors import ConfigError
from groupwise.verifiers.steps import DECIDED, MAX_STEPS, Step, equation_steps, inner_ends, split_steps, step_ends

TEXTS = st.text(alphabet="12+= .\nab。</think>", max_size=40)
KINDS = st.sampled_from(["equation", "sentence", "newline", r"\d+", " *\n"])


@given(TEXTS, KINDS)
def test_joined_they_are_the_text_and_none_is_empty(text: str, step: str) -> None:
    steps = split_steps(text, step)
    assert "".join(steps) == text
    assert all(steps)


@given(TEXTS, TEXTS, st.sampled_from(["sentence", "newline"]))
def test_what_follows_moves_no_end_before_it(text: str, more: str, step: str) -> None:
    inner = [end for end in step_ends(text + "a", step)[:-1] if end <= len(text)]
    longer = step_ends(text + "a" + more, step)
    assert longer[: len(inner)] == inner


@given(TEXTS)
def test_equations_end_where_the_process_advantage_has_them(text: str) -> None:
    ends = step_ends(text, "equation")
    assert [step.end for step in equation_steps(text) if text[step.end :].strip()] == ends[:-1]


def test_examples() -> None:
    text = "<think>47×80=3760. 47×6=282.\nSo 3760+282=4042.</think>\nThe answer is 4042. Done."
    assert split_steps(text, "sentence") == [
        "<think>47×80=3760. ", "47×6=282.\n", "So 3760+282=4042.</think>\nThe answer is 4042. Done.",
    ]  # fmt: skip
    assert split_steps("One.\n\n  Two\n", "newline") == ["One.\n", "\n  Two\n"]
    assert split_steps("先算2。再算3。", "sentence") == ["先算2。", "再算3。"]
    assert split_steps("", "newline") == []


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
