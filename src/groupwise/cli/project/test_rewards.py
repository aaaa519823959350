"""Tests of the reward, what it pays for and what not: run `pytest` before every training."""

from rewards import reward


def test_a_right_answer_is_paid() -> None:
    """One box with the reference answer."""
    assert reward(r"<think>2 × 3 = 6</think>\boxed{6}", "6")["right"] == 1


def test_a_short_one_earns_more() -> None:
    """Of two right answers the short one."""
    assert sum(reward(r"\boxed{6}", "6").values()) > sum(reward("Well, " * 20 + r"\boxed{6}", "6").values())


def test_wrong_missing_and_several_answers_earn_nothing() -> None:
    """Two boxes would be two guesses."""
    for text in (r"\boxed{7}", "6", "", r"\boxed{6} or \boxed{7}"):
        assert sum(reward(text, "6").values()) == 0
