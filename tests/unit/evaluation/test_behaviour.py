import pytest

from groupwise.evaluation.behaviour import COURSES, PATTERNS, Behaviour, behaviour_shares, behaviours

AT_ONCE, WORKS_OUT, UNFINISHED, CHECKS, ANOTHER_WAY = Behaviour


@pytest.mark.parametrize(
    ("text", "outcome", "expected"),
    [
        ("<think></think>\\boxed{42}", "correct", {AT_ONCE}),
        ("<think>6×7=42</think>\\boxed{42}", "correct", {AT_ONCE}),
        ("<think>6×7=42. 42+0=42.</think>\\boxed{42}", "wrong", {WORKS_OUT}),
        ("<think>6×7=42. 7×6=42. 等一下，检查一下。</think>\\boxed{42}", "correct", {WORKS_OUT, CHECKS}),
        ("<think>6×7=42. Wait, let me check.</think>\\boxed{42}", "correct", {AT_ONCE, CHECKS}),
        ("<think>a=1. b=2. Another way: c=3.</think>\\boxed{3}", "wrong", {WORKS_OUT, ANOTHER_WAY}),
        ("<think>a=1. b=2. WAIT", "unparsable", {UNFINISHED, CHECKS}),
        ("<think>a=1. b=2.</think> hm", "unparsable", {UNFINISHED}),
        ("<think>a=1</think> so x=2, y=3: \\boxed{3}", "wrong", {AT_ONCE}),  # after the reasoning nothing counts
        ("x=1, y=2, so \\boxed{2}", "correct", {WORKS_OUT}),  # no tags: all of it counts
        ("<think>x<=1, y>=2, z!=3, w==4</think>\\boxed{4}", "correct", {AT_ONCE}),  # comparisons are no equations
        ("<think>waiters=3</think>\\boxed{3}", "correct", {AT_ONCE}),  # a word, not a part of one
        ("<think>a=1. b=2", "timeout", {UNFINISHED}),
    ],
)
def test_course_and_moves(text: str, outcome: str, expected: set[Behaviour]) -> None:
    assert behaviours(text, outcome) == expected


def test_a_prompt_may_have_opened_the_reasoning() -> None:
    assert behaviours("a=1. b=2.", "wrong", prompt="What?\n<think>") == {UNFINISHED}
    assert behaviours("a=1. b=2.</think>2", "wrong", prompt="What?\n<think>") == {WORKS_OUT}
    assert behaviours("a=1. b=2.", "wrong", prompt="<think>an example</think>") == {WORKS_OUT}


def test_courses_add_up_to_one_and_moves_need_not() -> None:
    texts = ["<think>a=1</think>1", "<think>a=1. b=1. Wait.</think>1", "<think>Wait", "<think>a=1. b=1.</think>1"]
    rows = [{"text": text, "outcome": "wrong", "prompt": "q"} for text in texts]
    shares = behaviour_shares(rows)
    assert shares == {AT_ONCE: 0.25, WORKS_OUT: 0.5, UNFINISHED: 0.25, CHECKS: 0.5, ANOTHER_WAY: 0.0}
    assert sum(shares[course] for course in COURSES) == 1


def test_nothing_is_not_zero() -> None:
    assert behaviour_shares([]) == {}


def test_phrases_can_be_replaced() -> None:
    patterns = {**PATTERNS, CHECKS: {"de": ("moment mal",)}}
    assert CHECKS in behaviours("<think>Moment mal</think>1", "wrong", patterns=patterns)
    assert CHECKS not in behaviours("<think>Wait</think>1", "wrong", patterns=patterns)
