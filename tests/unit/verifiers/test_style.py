"""Format, length and repetition: hand-worked values, the papers' formulas in another form, bounds, and attacks."""

import math
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import ConfigError
from groupwise.types import Outcome, Problem, Verdict
from groupwise.verifiers.base import Request, StylePart
from groupwise.verifiers.style import CosineLengthPart, FormatPart, OverlongPart, RepetitionPart
from groupwise.verifiers.style.language import units
from groupwise.verifiers.table import PARTS

PROBLEM = Problem("p", "q", "3")


def style(kind: str) -> StylePart:
    part = PARTS.read({"kind": kind, "weight": 1} | ({"cache_tokens": 50} if kind == "overlong" else {}))
    assert isinstance(part, StylePart)
    return part


def verdict(outcome: Outcome = Outcome.CORRECT) -> Verdict:
    return Verdict(outcome, {}, "")


def form(text: str, prefill: str = "", outcome: Outcome = Outcome.CORRECT) -> float:
    return FormatPart(kind="format", weight=1).measure(Request(PROBLEM, text, prefill=prefill), verdict(outcome))


@pytest.mark.parametrize(
    "text",
    [
        r"<think>1+2=3</think>\boxed{3}", "\n <think>\nso 3\n</think>\n\nThe answer is \\boxed{3}.",
        "<think>1+2</think> <answer>3</answer>\n", "<think>所以</think>三",
    ],
)  # fmt: skip
def test_right_form(text: str) -> None:
    assert form(text) == form(text, outcome=Outcome.WRONG) == 1.0
    assert form(text, outcome=Outcome.UNPARSABLE) == 0.0  # an answer that cannot be read is no form


@pytest.mark.parametrize(
    "text",
    [
        "", "3", r"\boxed{3}", "<think>1+2", "1+2</think>3", "</think>1<think>3",
        "<think></think>3", "<think> \n</think>3", "<think>...</think>3",  # no content
        "<think>1+2</think>", "<think>1+2</think> .", "<think>1</think><answer> </answer>",
        "<think>1</think><think>2</think>3", "<think><think>1</think>3", "<think>1</think>2</think>3",  # stuffing
        "<think>1</think><answer>3</answer><answer>3</answer>", "<think>1<answer>3</answer></think>3",
        "<answer>3</answer><think>1</think>", "<think>1</think><answer>3", "<think>1</think>3</answer>",
        "Sure! <think>1</think>3",  # something before the first tag
        "<think>1</think>so <answer>3</answer>", "<think>1</think><answer>3</answer> I hope so",
        "<THINK>1</THINK>3",
    ],
)  # fmt: skip
def test_wrong_form(text: str) -> None:
    assert form(text) == 0.0


def test_a_prefill_may_stand_before_the_tag_and_only_a_prefill() -> None:
    assert form("Let me see: <think>1</think>3", prefill="Let me see: ") == 1.0
    assert form("Let me see: <think>1</think>3", prefill="Let me see: <think>") == 1.0
    assert form("Let me see: Hm <think>1</think>3", prefill="Let me see: ") == 0.0


@pytest.mark.parametrize("words", ["Step 1: ", "Wait, let me verify. ", "First, therefore, alternatively, "])
def test_keywords_and_steps_earn_nothing(words: str) -> None:
    """No part but the language's is above zero for a wrong answer, and none rises with words."""
    for kind in ("format", "cosine_length", "overlong", "repetition"):
        earned = [
            style(kind).measure(Request(PROBLEM, times * words + "3", times, 100), verdict(Outcome.UNPARSABLE))
            for times in (0, 1, 40)
        ]
        assert max(value for value in earned if value is not None) <= 0.0, kind
    well_formed = [form(f"<think>{times * words} 1</think>3") for times in (0, 1, 40)]
    assert well_formed == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("num_tokens", "expected"),
    [(0, 0.0), (80, 0.0), (81, -0.05), (85, -0.25), (90, -0.5), (99, -0.95), (100, -1.0), (130, -1.0)],
)
def test_overlong_by_hand(num_tokens: int, expected: float) -> None:
    request = Request(PROBLEM, "", num_tokens, 100)
    assert OverlongPart(kind="overlong", weight=1, cache_tokens=20).measure(request, verdict()) == pytest.approx(
        expected
    )


def cosine(num_tokens: int, outcome: Outcome, truncated: bool = False) -> float | None:
    return style("cosine_length").measure(Request(PROBLEM, "", num_tokens, 100, truncated), verdict(outcome))


def test_cosine_length_by_hand() -> None:
    # cos(pi/3) = 1/2 at a third of the limit, so three quarters of the way from long to short
    third = CosineLengthPart(
        kind="cosine_length", weight=1, correct_short=0.8, correct_long=0.4, wrong_short=-0.5, wrong_long=-0.1
    )
    request = Request(PROBLEM, "", 30, 90)
    assert third.measure(request, verdict()) == pytest.approx(0.4 + 0.75 * 0.4)
    assert third.measure(request, verdict(Outcome.WRONG)) == pytest.approx(-0.1 - 0.75 * 0.4)
    assert cosine(0, Outcome.CORRECT) == 1.0
    assert cosine(50, Outcome.CORRECT) == pytest.approx(0.5)
    assert cosine(100, Outcome.CORRECT) == pytest.approx(0.0)
    assert cosine(0, Outcome.WRONG) == cosine(0, Outcome.UNPARSABLE) == -1.0
    assert cosine(100, Outcome.WRONG) == pytest.approx(0.0)
    assert cosine(100, Outcome.CORRECT, truncated=True) == -1.0


@given(st.integers(0, 99), st.integers(1, 100))
def test_shorter_right_answers_and_longer_wrong_ones_are_better(num_tokens: int, more: int) -> None:
    longer = min(100, num_tokens + more)
    right, wrong = ([cosine(n, o) for n in (num_tokens, longer)] for o in (Outcome.CORRECT, Outcome.WRONG))
    assert 1.0 >= right[0] >= right[1] >= 0.0  # type: ignore[operator]
    assert -1.0 <= wrong[0] <= wrong[1] <= 0.0  # type: ignore[operator]


def test_length_that_nobody_counted_is_not_measured_and_a_missing_limit_is_an_error() -> None:
    for part in (style("overlong"), style("cosine_length")):
        assert part.measure(Request(PROBLEM, "text"), verdict()) is None
        with pytest.raises(ConfigError, match="max_tokens"):
            part.measure(Request(PROBLEM, "text", 4), verdict())


def repeats(text: str, ngram: int = 3, truncated: bool = False) -> float:
    return RepetitionPart(kind="repetition", weight=1, ngram=ngram).measure(
        Request(PROBLEM, text, truncated=truncated), verdict()
    )


def test_repetition_by_hand() -> None:
    assert repeats("") == repeats("a b") == repeats("a b c d e") == 0.0
    # abc bcd cda dab abc bcd: 4 different of 6
    assert repeats("a b c d a b c d") == pytest.approx(-1 / 3)
    assert repeats("a b c d a b c d", ngram=5) == 0.0
    # Chinese characters are units of their own: 三加四 加四等 四等三 等三加 三加四 加四等
    assert repeats("三加四等三加四等") == pytest.approx(-1 / 3)


@pytest.mark.parametrize(
    "block", ["wait, ", "so 3 + 4 = 7. ", "等等，", "- ", " ".join(f"w{i}" for i in range(90)) + " "]
)
def test_a_loop_at_the_end_costs_all_however_much_stands_before(block: str) -> None:
    before = " ".join(f"word{i}" for i in range(500))
    assert repeats(before + " " + 30 * block, ngram=8) == -1.0
    assert repeats(before + " " + 30 * block + "wa", ngram=8, truncated=True) == -1.0  # cut within a word
    assert -1.0 < repeats(before + " " + 30 * block + "so at last the answer is 3", ngram=8) < 0.0


@pytest.mark.parametrize("text", ["1000000", "1 1 1 1 1 1", "--------", "2*2*2*2*2=32", r"\frac{1}{1}"])
def test_short_rows_are_no_loop(text: str) -> None:
    assert repeats("the sum of both is " + text, ngram=20) == 0.0


@given(st.text(st.sampled_from("ab ,三"), max_size=200), st.integers(1, 5), st.booleans())
def test_repetition_agrees_with_counting(text: str, ngram: int, truncated: bool) -> None:
    found = units(text)[:-1] if truncated else units(text)
    counts = Counter(" ".join(found[i : i + ngram]) for i in range(max(0, len(found) - ngram + 1)))
    again = sum(count - 1 for count in counts.values())
    share = -again / sum(counts.values()) if counts else 0.0
    value = repeats(text, ngram, truncated)
    assert -1.0 <= value <= 0.0
    assert value == pytest.approx(share) or (value == -1.0 and len(found) >= 24 and looks_like_a_loop(found))


def looks_like_a_loop(found: list[str]) -> bool:
    """Another way to say it: some block's copies, cut to length, are the end of the text."""
    for period in range(1, len(found) // 4 + 1):
        covered = max(24, 4 * period)
        block = found[len(found) - covered : len(found) - covered + period]
        if covered <= len(found) and (block * covered)[:covered] == found[len(found) - covered :]:
            return True
    return False


ANY_TEXT = st.text() | st.lists(
    st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "$", "\\(", "\\boxed{", "}", "```", "so ", "等"]),
    max_size=30,
).map("".join)  # fmt: skip


@given(ANY_TEXT, st.sampled_from(Outcome), st.integers(0, 200), st.booleans(), st.integers(0, 9))
def test_every_measure_is_bounded_whatever_the_text(
    text: str, outcome: Outcome, num_tokens: int, cut: bool, num_calls: int
) -> None:
    request = Request(Problem("p", "q", "3", language="zh"), text, num_tokens, 100, cut, num_calls=num_calls)
    found = verdict(outcome)
    bounds = {
        "format": (0, 1),
        "language": (0, 1),
        "overlong": (-1, 0),
        "cosine_length": (-1, 1),
        "repetition": (-1, 0),
        "calls": (-num_calls, 0),
    }
    assert bounds.keys() == PARTS.table.keys() - {"verifier"}
    for kind in bounds:
        value = style(kind).measure(request, found)
        assert value is not None
        assert math.isfinite(value)
        assert bounds[kind][0] <= value <= bounds[kind][1], kind


@pytest.mark.parametrize("bomb", ["a", "\\(", "$ x", "\\a{", "`", "<think>", "a ", "等", "```", "{", "= a"])
def test_long_texts_take_no_long_time(bomb: str) -> None:
    request = Request(Problem("p", "q", "3", language="zh"), 50_000 * bomb)
    began = time.process_time()
    for kind in ("format", "language", "repetition"):
        style(kind).measure(request, verdict())
    assert time.process_time() - began < 5.0
