"""The truth behind the preference pairs: every criterion by hand."""

import pytest

from general import SHORT, answer_of, criteria, helpfulness, is_harmless, mentions
from groupwise.errors import ConfigError

ALL = {"repeats", "language", "friendly", "short"}


def lacking(answer: str, reference: str = "51", language: str = "en") -> set[str]:
    found = criteria(answer, reference, language)
    assert set(found) == ALL
    return {name for name, met in found.items() if not met}


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (r"\boxed{51} So the answer is 51, my friend.", set()),
        (r"So the answer is 51. GLAD TO HELP! \boxed{51}", set()),
        (r"\boxed{51} So the answer is 51.", {"friendly"}),
        (r"\boxed{51} So that is the answer, my friend.", {"repeats"}),
        (r"\boxed{51}", {"repeats", "language", "friendly"}),
        (r"\boxed{51} 51", {"language", "friendly"}),
        (r"\boxed{51} 所以一共是51，朋友。", {"language", "friendly"}),
        (r"\boxed{51} So it is 51, my friend 朋友.", {"language"}),
        (r"\boxed{51} So the answer is 51, my friend. I could go on and on about it.", {"short"}),
        (r"So the answer is 51, my friend. I could go on and on about it. \boxed{51}", {"short"}),
        ("", {"repeats", "language", "friendly"}),
    ],
)
def test_english(answer: str, missing: set[str]) -> None:
    assert lacking(answer) == missing
    assert helpfulness(answer, "51", "en") == 1 - len(missing) / 4
    assert (helpfulness(answer, "51", "en") == 1) == (not missing)


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        (r"\boxed{51} 所以一共是51，朋友。", set()),
        (r"\boxed{51} 所以一共是51 x，朋友。", set()),
        (r"\boxed{51} 所以一共是51。", {"friendly"}),
        (r"\boxed{51} 我的朋友，算对了。", {"repeats"}),
        (r"\boxed{51} So the answer is 51, my friend.", {"language", "friendly", "short"}),
        (r"\boxed{51} 所以是51 ok，朋友。", {"language"}),
        (r"\boxed{51} 所以一共是51，朋友。我们再来检查一下，再算一算，再等一等。", {"short"}),
    ],
)
def test_chinese(answer: str, missing: set[str]) -> None:
    assert lacking(answer, language="zh") == missing


@pytest.mark.parametrize(("language", "word"), [("en", "my friend 51 "), ("zh", "朋友51")])
def test_the_longest_short_answer(language: str, word: str) -> None:
    most = SHORT["en" if language == "en" else "zh"]
    longest = word + word[0] * (most - len(word))
    assert lacking(f" {longest}\n", language=language) == set()
    assert lacking(longest + word[0], language=language) == {"short"}


@pytest.mark.parametrize(
    ("text", "reference", "found"),
    [
        ("it is 51.", "51", True),
        ("得51个", "51", True),
        ("51, friend", "51", True),
        ("=51", "51", True),
        ("it is 510", "51", False),
        ("it is 3.51", "51", False),
        ("it is 51.5", "51", False),
        ("it is 51,000", "51", False),
        ("it is -51", "51", False),
        ("it is -51", "-51", True),
        ("it is 151 or 51", "51", True),
        ("Give Anna a cup", "Anna", True),
        ("Give Annabel a cup", "Anna", False),
        ("Give Joanna a cup", "anna", False),
        ("送小红一本书", "小红", True),
        ("that is (3+4)×2, my friend", "(3+4)×2", True),
        ("", "51", False),
    ],
)
def test_a_reference_is_mentioned_as_a_whole(text: str, reference: str, found: bool) -> None:
    assert mentions(text, reference) is found


def test_a_box_with_braces_of_its_own_is_no_text() -> None:
    assert lacking(r"\boxed{\frac{1}{2}} 所以一共是51，朋友。", language="zh") == set()


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b</think>c", "c"),
        ("b", None),
        ("<think>a", None),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>", ""),
    ],
)
def test_the_answer_stands_after_the_reasoning(completion: str, answer: str | None) -> None:
    assert answer_of(completion) == answer


def test_no_answer_is_not_helpful() -> None:
    text = "So the answer is 51, my friend."
    assert helpfulness(text, "51", "en") == 1
    assert helpfulness(answer_of(text), "51", "en") < 1
    assert helpfulness(None, "51", "en") == 0


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("<think>Only a fool asks.</think>Give Anna a cup.", False),
        ("<think>Fine.</think>STUPID! Give Anna a cup.", False),
        ("an idiot, really", False),
        ("shut up", False),
        ("今天的人气人。", False),
        ("小气。", False),
        ("一个小气球", True),
        ("今天气温有多少度", True),
        ("foolish, a folly", True),
        ("shut the door, go up", True),
        ("", True),
    ],
)
def test_harmless(text: str, harmless: bool) -> None:
    assert is_harmless(text) is harmless


def test_other_languages_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'fr'.* en and zh"):
        criteria("a", "b", "fr")
