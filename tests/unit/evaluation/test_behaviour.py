"""Behaviours of completions and the tokens after the first correct value, by example."""

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.config import dump_toml, parse
from groupwise.errors import ConfigError
from groupwise.evaluation.behaviour import (
    COURSES,
    PATTERNS,
    Behaviour,
    behaviour_shares,
    first_value,
    is_measured,
    patterns_of,
    row_behaviours,
    span_of,
    tokens_after_first,
)
from groupwise.runs.row import Row
from groupwise.types import FinishReason, Outcome
from groupwise.verifiers.style import PHRASES, BehaviourConfig, PhrasesConfig

AT_ONCE, WORKS_OUT, UNFINISHED, CHECKS, BACKTRACKS, ANOTHER_WAY, LOOPS, MIXES, OPEN_TAGS = Behaviour


def row(text: str, outcome: str = "wrong", **more: Any) -> Row:
    """A completion of a problem of unknown language; the prompt opened nothing."""
    return Row(
        **{
            "problem": "p", "difficulty": "", "language": None, "question": "q", "reference": "42", "open_ended": False,
            "prefill": "", "sample": 0, "text": text, "finish_reason": FinishReason.STOP, "outcome": Outcome(outcome),
            "answer": None, "evidence": "", "num_tokens": len(text), **more,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "outcome", "expected"),
    [
        ("<think></think>\\boxed{42}", "correct", {AT_ONCE}),
        ("<think>6×7=42</think>\\boxed{42}", "correct", {AT_ONCE}),
        ("<think>6×7=42. 42+0=42.</think>\\boxed{42}", "wrong", {WORKS_OUT}),
        ("<think>6×7=42. 7×6=42. 等一下，检查一下。</think>\\boxed{42}", "correct", {WORKS_OUT, CHECKS}),
        ("<think>6×7=42. Wait, let me check.</think>\\boxed{42}", "correct", {AT_ONCE, CHECKS}),
        ("<think>a=1. b=2. Another way: c=3.</think>\\boxed{3}", "wrong", {WORKS_OUT, ANOTHER_WAY}),
        ("<think>a=1. b=2. WAIT", "unparsable", {UNFINISHED, CHECKS, OPEN_TAGS}),
        ("<think>a=1. b=2.</think> hm", "unparsable", {UNFINISHED}),
        ("<think>a=1</think> so x=2, y=3: \\boxed{3}", "wrong", {AT_ONCE}),  # after the reasoning nothing counts
        ("x=1, y=2, so \\boxed{2}", "correct", {WORKS_OUT}),  # no tags: all of it counts
        ("<think>x<=1, y>=2, z!=3, w==4</think>\\boxed{4}", "correct", {AT_ONCE}),  # comparisons are no equations
        ("<think>waiters=3</think>\\boxed{3}", "correct", {AT_ONCE}),  # a word, not a part of one
        ("<think>a=1. b=2", "timeout", {UNFINISHED, OPEN_TAGS}),
    ],
)
def test_course_and_moves(text: str, outcome: str, expected: set[Behaviour]) -> None:
    assert row_behaviours(row(text, outcome)) == expected


def test_a_prompt_may_have_opened_the_reasoning() -> None:
    assert row_behaviours(row("a=1. b=2.", prefill="<think>")) == {UNFINISHED, OPEN_TAGS}
    assert row_behaviours(row("a=1. b=2.</think>2", prefill="<think>")) == {WORKS_OUT}
    assert row_behaviours(row("a=1. b=2.")) == {WORKS_OUT}


@pytest.mark.parametrize(
    ("behaviour", "language", "text", "passage"),
    [
        (BACKTRACKS, None, "3+4=8. No, that is wrong. 3+4=7.", "that is wrong"),
        (BACKTRACKS, None, "3+4=8. That's not right.", "That's not right"),
        (BACKTRACKS, None, "So x=2. Hmm, this isn't correct.", "this isn't correct"),
        (BACKTRACKS, None, "x=2. It was incorrect.", "It was incorrect"),
        (BACKTRACKS, None, "x=2. Let me redo the sum.", "Let me redo"),
        (BACKTRACKS, None, "I should go back to the first step.", "I should go back"),
        (BACKTRACKS, None, "Let me start over.", "start over"),
        (BACKTRACKS, None, "I made a sign error.", "I made a sign error"),
        (BACKTRACKS, None, "45. Wait, let me check. 7×6=42. No. 7×6=42.", "check. 7×6=42. No."),
        (BACKTRACKS, None, "1+1=3。不对。1+1=2。", "不对"),
        (BACKTRACKS, None, "我们重新算一遍。", "重新算"),
        (BACKTRACKS, None, "重新计算：", "重新计算"),
        (BACKTRACKS, None, "我算错了。", "算错了"),
        (LOOPS, None, "<think>47×30=1410. " + "47×1=47. " * 7, "47×1=47. " * 3 + "47×1=47."),
        (LOOPS, None, "先算。" + "我们再算一遍吧，" * 5, "我们再算一遍吧，" * 4),
        (MIXES, "en", "First 3+4=7. 所以 7×2=14.", "所"),
        (MIXES, "zh", "先算3+4=7。Then 7×2=14。", "Then"),
        (MIXES, "ja", "まず計算します。wait", "wait"),
        (MIXES, "zh", "先计算。まず", "ま"),
        (MIXES, "ru", "Сначала считаем. So 7.", "So"),
        (MIXES, "de", "Zuerst 7, потом 8.", "потом"),
        (OPEN_TAGS, None, "<think>a", "<think>"),
        (OPEN_TAGS, None, "a</think>\\boxed{1}", "</think>"),
        (OPEN_TAGS, None, "<think>a</think>b</think>", "</think>"),
        (OPEN_TAGS, None, "<think>a<think>b</think>", "<think>"),
        (OPEN_TAGS, None, "<think>a</think><answer>1", "<answer>"),
        (OPEN_TAGS, None, "<think>a<answer>1</answer></think>", "<answer>"),
        (OPEN_TAGS, None, "</think>a<think>", "</think>"),
    ],
)
def test_a_behaviour_is_found_where_it_is(behaviour: Behaviour, language: str | None, text: str, passage: str) -> None:
    span = span_of(behaviour, row(text, language=language))
    assert span is not None
    assert text[slice(*span)] == passage


@pytest.mark.parametrize(
    "text",
    [
        "No worries, 3+4=7.",
        "There is no. 7 on the list.",
        "Is 91 prime? No. It is 7×13.",
        "Let me check: is 91 prime? No. It is 7×13.",
        "Wait, let me check. 7×6=42. Yes.",
        "Let me check. Nothing is left. Nobody pays.",
        "The triangle is not right-angled, that is, it's not right-angled.",
        "If this is wrong, x is odd.",
        "That is right.",
        "He starts overseas.",
        "对不对？对。",
        "这两个图形不对称。",
        "把方程重新排列。",
        "小明做错了3题。",
    ],
)
def test_what_only_looks_like_backtracking(text: str) -> None:
    assert BACKTRACKS not in row_behaviours(row(text))


def test_what_is_no_loop() -> None:
    assert LOOPS not in row_behaviours(row("47×1=47. " * 3))
    assert LOOPS not in row_behaviours(row("47×1=47. " * 7 + "So it is 47."))
    assert LOOPS not in row_behaviours(row("x = 1000000000000000000000000000000"))


def test_the_last_word_of_a_truncated_loop_may_be_cut() -> None:
    text = "say it once more now, " * 6 + "say it on"
    assert LOOPS in row_behaviours(row(text, finish_reason=FinishReason.LENGTH))
    assert LOOPS not in row_behaviours(row(text))


@pytest.mark.parametrize(
    ("language", "text", "question"),
    [
        ("en", "The angle θ is 30°, and π is 3.14. x=2", ""),
        ("en", "Zuerst 7, alors 8.", ""),  # languages of one script are not told apart
        ("zh", "先算3+4=7。\\boxed{7}", ""),
        ("zh", "<think>x=3, 所以 ab=4</think>", ""),
        ("zh", "三角形ABC的边长是5 cm。", "求三角形ABC的边长（单位 cm）。"),  # words of the question
        ("en", "小明 has 3 apples.", "How many apples has 小明?"),
        ("ja", "まず計算します。", ""),
    ],
)
def test_what_is_no_mixture(language: str, text: str, question: str) -> None:
    assert MIXES not in row_behaviours(row(text, language=language, question=question))


@pytest.mark.parametrize("language", [None, "tlh"])
def test_without_a_known_language_mixing_is_not_measured(language: str | None) -> None:
    one = row("First 所以", language=language)
    assert not is_measured(MIXES, one)
    assert MIXES not in row_behaviours(one)
    assert MIXES not in behaviour_shares([one])
    assert behaviour_shares([one, row("First 所以", language="en")])[MIXES] == 1.0


@pytest.mark.parametrize("text", ["no tags", "<think>a</think>1", "<think>a</think><answer>1</answer>", "x<y>z"])
def test_closed_tags(text: str) -> None:
    assert OPEN_TAGS not in row_behaviours(row(text))


def test_courses_add_up_to_one_and_moves_need_not() -> None:
    texts = ["<think>a=1</think>1", "<think>a=1. b=1. Wait.</think>1", "<think>Wait", "<think>a=1. b=1.</think>1"]
    shares = behaviour_shares([row(text) for text in texts])
    assert shares == {
        AT_ONCE: 0.25, WORKS_OUT: 0.5, UNFINISHED: 0.25, CHECKS: 0.5, BACKTRACKS: 0.0, ANOTHER_WAY: 0.0, LOOPS: 0.0,
        OPEN_TAGS: 0.25,
    }  # fmt: skip
    assert sum(shares[course] for course in COURSES) == 1


PIECES = st.sampled_from(
    [
        "<think>", "</think>", "<answer>", "</answer>", "1+1=2. ", "Wait, ", "No. ", "不对。", "重新算", "so ", "所以",
        "{", "\\",
    ]
)  # fmt: skip


@given(
    st.lists(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=30), min_size=1, max_size=8),
    st.sampled_from([None, "en", "zh", "ja"]),
    st.sampled_from(["", "<think>"]),
    st.sampled_from(["correct", "wrong", "unparsable"]),
)
def test_shares_are_shares_courses_add_up_and_passages_lie_within(
    texts: list[str], language: str | None, prefill: str, outcome: str
) -> None:
    rows = [row(text, outcome, language=language, prefill=prefill) for text in texts]
    shares = behaviour_shares(rows)
    assert all(0 <= share <= 1 for share in shares.values())
    assert sum(shares[course] for course in COURSES) == pytest.approx(1)
    for one in rows:
        assert len(row_behaviours(one) & set(COURSES)) == 1
        for which in Behaviour:
            span = span_of(which, one) if is_measured(which, one) else None
            assert span is None or 0 <= span[0] <= span[1] <= len(one.text)


def test_nothing_is_not_zero() -> None:
    assert behaviour_shares([]) == {}


def own(extend: bool = True) -> dict[Behaviour, Any]:
    table = {"extend": extend, "patterns": {"checks": {"de": ["moment mal"], "en": ["hold on"]}}}
    return dict(patterns_of(parse(BehaviourConfig, table)))


def test_own_phrases_are_added() -> None:
    assert CHECKS in row_behaviours(row("<think>Moment mal</think>1"), own())
    assert CHECKS in row_behaviours(row("<think>HOLD ON</think>1"), own())
    assert CHECKS in row_behaviours(row("<think>Wait</think>1"), own())
    assert CHECKS not in row_behaviours(row("<think>Moment mal, hold on</think>1"))


def test_own_phrases_replace_those_of_their_language() -> None:
    assert CHECKS not in row_behaviours(row("<think>Wait</think>1"), own(extend=False))
    assert CHECKS in row_behaviours(row("<think>hold on</think>1"), own(extend=False))
    assert CHECKS in row_behaviours(row("<think>检查</think>1"), own(extend=False))
    assert own(extend=False)[BACKTRACKS] == PATTERNS[BACKTRACKS]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("(wait", "missing \\)"), ("wait*|", "matches the empty text"), ("a{2,1}", "min repeat greater than max")],
)
def test_what_is_no_phrase_is_refused_by_name(pattern: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"patterns\.backtracks\.en\.1 = '{re.escape(pattern)}': .*{said}"):
        parse(BehaviourConfig, {"patterns": {"backtracks": {"en": ["oops", pattern]}}})


def test_an_unknown_behaviour_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"patterns\.loops: unknown key"):
        parse(BehaviourConfig, {"patterns": {"loops": {"en": ["again"]}}})


def test_phrases_come_back_from_toml() -> None:
    config = parse(BehaviourConfig, {}, ['patterns.checks.en=["\\\\bhold on\\\\b"]', "extend=false"])
    assert config.patterns.checks == {"en": ("\\bhold on\\b",)}
    assert parse(BehaviourConfig, tomllib.loads(dump_toml(config))) == config


def test_every_embedded_phrase_can_be_configured() -> None:
    assert set(PHRASES) == set(PhrasesConfig.model_fields)
    assert all({"en", "zh"} <= languages.keys() for languages in PHRASES.values())


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


def solution(text: str, reference: str, outcome: str = "correct", num_tokens: int = 10) -> Row:
    return Row(
        **{
            "problem": "p", "difficulty": "", "language": None, "question": "q", "reference": reference,
            "open_ended": False, "prefill": "", "sample": 0, "text": text, "finish_reason": FinishReason.STOP,
            "outcome": Outcome(outcome), "answer": None, "evidence": "", "num_tokens": num_tokens,
        }
    )  # fmt: skip


def test_tokens_after_the_value_by_hand() -> None:
    # 20 characters, 6 of them up to the value
    assert tokens_after_first(solution("6×7=42. 7×6=42. Yes.", "42", num_tokens=20)) == 20 * 14 / 20
    assert tokens_after_first(solution("x=42" + 12 * "!", "42", num_tokens=8)) == 6.0
    assert tokens_after_first(solution("x=42", "42")) == 0.0


def test_only_correct_completions_in_which_the_value_stands_count() -> None:
    assert tokens_after_first(solution("x=42", "42", "wrong")) is None
    assert tokens_after_first(solution("x=42", "42", "timeout")) is None
    assert tokens_after_first(solution("x equals forty-two", "42")) is None


@given(st.text(max_size=60), st.integers(-999, 9999), st.text(max_size=60), st.integers(1, 50))
def test_it_is_never_more_than_all_and_never_before_the_value(before: str, value: int, after: str, tokens: int) -> None:
    text = f"{before} x = {value} . {after}"
    found = tokens_after_first(solution(text, str(value), num_tokens=tokens))
    assert found is not None
    # the planted place is a result, so the first one is not behind it
    assert tokens * (len(after) + 3) / len(text) - 1e-9 <= found <= tokens
