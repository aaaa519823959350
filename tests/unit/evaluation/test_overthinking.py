import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.evaluation.overthinking import first_value, tokens_after_first
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome


@pytest.mark.parametrize(
    ("text", "reference", "upto"),
    [
        ("47×80=3760. 3760+282=4042. Wait", "4042", "47×80=3760. 3760+282=4042"),
        ("4042? 2×2021=4042", "4042", "4042? 2×2021=4042"),  # the question of a value is no result
        ("7×8=56. 56/8=7.", "7", "7×8=56. 56/8=7"),  # an operand is none
        ("y=7×1. So y=7", "7", "y=7×1. So y=7"),  # nor is what goes on
        ("x=4,042 so", "4042", "x=4,042"),
        ("x=4042.5, x=4042", "4042", "x=4042.5, x=4042"),
        ("x=14042, x=40421, x = $4042$", "4042", "x=14042, x=40421, x = $4042"),
        ("x=0.50.", "1/2", "x=0.50"),
        ("x=5-8=-3.", "-3", "x=5-8=-3"),
        ("\\boxed{4042}", "4042", "\\boxed{4042"),
        ("The answer is 4042, my friend.", "4042", "The answer is 4042"),
        ("所以答案是4042。", "4042", "所以答案是4042"),
        ("<answer>4042</answer>", "4042", "<answer>4042"),
        ("a=x+12, b=2x+1, c=x+1", "x+1", "a=x+12, b=2x+1, c=x+1"),
        ("It is B: \\boxed{B}", "B", "It is B"),
        ("He is Bob. \\boxed{B}", "B", "He is Bob. \\boxed{B"),
        ("f=\\frac{1}{2}\\pi", "\\frac{1}{2}\\pi", "f=\\frac{1}{2}\\pi"),
    ],
)
def test_the_first_place_of_the_value(text: str, reference: str, upto: str) -> None:
    end = first_value(text, reference)
    assert end is not None
    assert text[:end] == upto


@pytest.mark.parametrize(
    "text",
    ["So the total = 42\n- Check: 40+2=42. Yes.", "It is 42 - so the answer.", "x = 42\n* a list", "It is 42 – or so"],
)
def test_a_dash_before_words_is_no_calculation(text: str) -> None:
    assert first_value(text, "42") == text.index("42") + 2


@pytest.mark.parametrize(
    ("text", "reference"), [("", "4"), ("4 apples", "4"), ("x=44", "4"), ("x=4y", "y"), ("=ab", "a")]
)
def test_where_the_value_never_stands(text: str, reference: str) -> None:
    assert first_value(text, reference) is None


def row(text: str, reference: str, outcome: str = "correct", num_tokens: int = 10) -> Row:
    return Row(
        **{
            "problem": "p", "difficulty": "", "language": None, "question": "q", "reference": reference,
            "open_ended": False, "prefill": "", "sample": 0, "text": text, "finish_reason": FinishReason.STOP,
            "outcome": Outcome(outcome),
            "answer": None, "evidence": "", "num_tokens": num_tokens,
        }
    )  # fmt: skip


def test_tokens_after_the_value_by_hand() -> None:
    # 20 characters, 6 of them up to the value
    assert tokens_after_first(row("6×7=42. 7×6=42. Yes.", "42", num_tokens=20)) == 20 * 14 / 20
    assert tokens_after_first(row("x=42" + 12 * "!", "42", num_tokens=8)) == 6.0
    assert tokens_after_first(row("x=42", "42")) == 0.0


def test_only_correct_completions_in_which_the_value_stands_count() -> None:
    assert tokens_after_first(row("x=42", "42", "wrong")) is None
    assert tokens_after_first(row("x=42", "42", "timeout")) is None
    assert tokens_after_first(row("x equals forty-two", "42")) is None


@given(st.text(max_size=60), st.integers(-999, 9999), st.text(max_size=60), st.integers(1, 50))
def test_it_is_never_more_than_all_and_never_before_the_value(before: str, value: int, after: str, tokens: int) -> None:
    text = f"{before} x = {value} . {after}"
    found = tokens_after_first(row(text, str(value), num_tokens=tokens))
    assert found is not None
    # the planted place is a result, so the first one is not behind it
    assert tokens * (len(after) + 3) / len(text) - 1e-9 <= found <= tokens
