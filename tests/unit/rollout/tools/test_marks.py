"""What a tool prints holds neither control tokens nor marks of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.rollout.tools.marks import without_answers, without_controls
from groupwise.verifiers.extraction import extract

PIECES = st.lists(
    st.sampled_from(["\\boxed{5}", "\\", "\\fbox{5}", "<answer>", "</answer>", "</think>", "<think>", "<", "/", "`",
                     "```", "#", "####", "think>", "boxed{7}", "answer>", " ", "5"]),
    max_size=12,
).map("".join)  # fmt: skip


@given(PIECES)
def test_a_tool_cannot_answer(printed: str) -> None:
    text = without_answers(printed)
    assert extract("<think>1</think>" + text, "boxed").answer is None
    assert extract("<think>1</think>" + text, "tag").answer is None
    assert "</think>" not in text
    assert "```" not in text
    assert "####" not in text


@pytest.mark.parametrize("text", ["3465", "a < b", "3.5\n[1, 2]", "`x`", "# 1", "\\frac{1}{2}", "<b>"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert without_answers(text) == text


@given(st.lists(st.sampled_from(["<|end|>", "<|", "end|>", "|", "a"]), max_size=8).map("".join))
def test_no_control_token_is_spelt(text: str) -> None:
    found = without_controls(text, ["<|end|>", ""])
    assert "<|end|>" not in found
    assert len(found) == len(text)
