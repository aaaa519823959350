"""Decontamination: what must go, what must stay, and a slow search that shares no code with the index."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.recall.words import Index, Rule, exact_words, expressions

LONG = "Tom has 12 apples and gives 5 of them to Mia before lunch. How many are left?"
ZH = "小明有12个苹果，又给了小红5个，然后去了学校，他现在还有多少个苹果？"


DEFAULT = Rule()


def found(item: str, *paragraphs: str, rule: Rule = DEFAULT) -> list[int]:
    return sorted({match.segment for match in Index([item], rule).matches(paragraphs)})


def test_ten_words_in_a_row_are_found_in_whatever_form() -> None:
    assert found(LONG, "Before.", f"x {LONG} y", "After.") == [1]
    assert found(LONG, LONG.upper().replace(" ", "  ").replace(".", " ...")) == [0]


def test_nine_words_in_a_row_are_not() -> None:
    words = exact_words(LONG)
    assert found(LONG, " ".join(words[:9])) == []
    assert found(LONG, " ".join(words[:10])) == [0]
    assert found(LONG, " ".join(words[3:13]), rule=Rule(numbers=False)) == [0]


def test_the_same_words_with_other_numbers_are_another_problem() -> None:
    end = "gives 5 of them to Mia before lunch. How many are left?"
    assert found(LONG, f"Ann has 12 pears and {end}") == [0]
    assert found(LONG, f"Ann has 13 pears and {end}") == []
    assert found(LONG, f"Ann has 13 pears and {end}", rule=Rule(numbers=False)) == [0]
    assert found(LONG, "Of 12 pears", end) == [1]  # in whatever paragraph
    assert found(LONG, f"12{' much later' * 20} {end}") == []


def test_groups_of_digits_are_one_number() -> None:
    item = "A town of 1,000 people is glad of every one of its ten new houses."
    assert found(item, "In all 1000 people is glad of every one of its ten new houses.") == [0]
    assert found(item, "In all 1 000 people is glad of every one of its ten new houses.") == [0]
    assert found(item, "In all 1001 people is glad of every one of its ten new houses.") == []


def test_twice_as_many_words_count_whatever_stands_around_them() -> None:
    words = [chr(ord("a") + i % 26) * 3 for i in range(30)]
    item = " ".join(["77", *words])
    assert found(item, " ".join(words[:19])) == []
    assert found(item, " ".join(words[:20])) == [0]


def test_a_run_across_paragraphs_counts_in_both() -> None:
    words = exact_words(LONG)
    assert found(LONG, "nothing here", " ".join(words[:6]), " ".join(words[6:12])) == [1, 2]


def test_short_texts_count_as_a_whole_and_very_short_ones_not_at_all() -> None:
    rule = Rule(expressions=False)
    assert found("the red green blue", "see the red green blue house", rule=rule) == [0]
    assert found("the red green blue", "see the red green house blue", rule=rule) == []
    assert found("42 apples", "there are 42 apples", rule=rule) == []


def test_the_expression_of_a_problem_is_found_in_other_words() -> None:
    assert found("What is 45 × 77?", "Take 45*77 and see") == [0]
    assert found("What is 45 × 77?", "Here 77 × 45 is meant") == [0]
    assert found("What is 45 × 77?", "45 x 77 or 45 + 77 or 145 × 77") == []
    assert found("What is 45 × 77?", "Take 45*77 and see", rule=Rule(expressions=False)) == []
    assert expressions("12 + 5 × 3 - 4") == [("12", "+", "5", "×", "3", "-", "4")]
    assert expressions("9 - 4") == [("9", "-", "4")]


@pytest.mark.parametrize(
    ("item", "page"),
    [
        ("1/2", "The derivative of x^(1/2) is found by the rule of powers."),
        ("Anna gives 1/2 of her 12 apples away", "About 1/2 of all primes are of this form."),
        ("He works 3-5 hours on 2024-11-25", "See pages 3-5 of the report of 2024-11-25."),
        ("x+1", "Substitute x + 1 for y."),
    ],
)
def test_what_stands_in_texts_of_every_kind_tells_nothing(item: str, page: str) -> None:
    assert found(item, page) == []


def test_twenty_characters_are_ten_words_of_chinese() -> None:
    words = exact_words(ZH)
    assert found(ZH, "".join(words[:19])) == []
    assert found(ZH, "".join(words[:20])) == [0]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.lists(st.sampled_from("abc"), max_size=14))
def test_it_equals_a_slow_search(item: list[str], text: list[str]) -> None:
    rule = Rule(size=4, min_size=2, expressions=False)
    own, other = f" {' '.join(item)} ", f" {' '.join(text)} "
    if len(item) >= 4:
        expected = any(f" {' '.join(item[i : i + 4])} " in other for i in range(len(item) - 3))
    else:
        expected = len(item) >= 2 and own in other
    assert bool(Index([" ".join(item)], rule).matches([" ".join(text)])) == expected


@pytest.mark.parametrize("text", ["", "a b", "。"])
def test_nothing_is_found_in_nothing(text: str) -> None:
    assert found(LONG, text) == []
    assert len(Index([], Rule())) == 0
