import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.recall.words import exact_words, features, is_ideograph, ngrams, words

WORDS = st.lists(st.sampled_from(["a", "b", "ab", "12", "×", "小"]), max_size=12)


def test_a_classifier_sees_signs_and_lengths_of_numbers_but_not_the_numbers() -> None:
    assert words("45×7 = 315, \\frac{x}{2}") == [
        "00", "×", "0", "=", "000", ",", "\\", "frac", "{", "x", "}", "{", "0", "}"
    ]  # fmt: skip
    assert words("45×7 = 315, \\frac{x}{2}", symbols=False) == ["00", "0", "000", "frac", "x", "0"]
    assert words("123456") == words("9999")


def test_copies_share_words_whatever_their_form() -> None:
    expected = ["what", "is", "45", "×", "77"]
    for text in ("What is 45 × 77?", "WHAT IS 45*77", "what is  ４５ · ７７ ?"):
        assert exact_words(text) == expected
    assert exact_words("45 − 7/2") == ["45", "-", "7", "÷", "2"]
    assert exact_words("小明有12个。") == ["小", "明", "有", "12", "个"]
    assert is_ideograph("小")
    assert not is_ideograph("a")


@given(WORDS, st.integers(1, 4))
def test_ngrams_are_equal_where_the_words_are(text: list[str], size: int) -> None:
    runs = [tuple(text[i : i + size]) for i in range(max(0, len(text) - size + 1))]
    found = ngrams(text, size)
    assert len(found) == len(runs)
    for i, one in enumerate(runs):
        for j, other in enumerate(runs):
            assert (found[i] == found[j]) == (one == other)


def test_order_and_boundaries_count() -> None:
    assert ngrams(["a", "b"], 2) != ngrams(["b", "a"], 2)
    assert ngrams(["ab"], 1) != ngrams(["a", "b"], 2)


def test_features_are_the_buckets_of_all_ngrams_each_once() -> None:
    found = features(["a", "b", "a", "b"], longest=2, buckets=1 << 20)
    expected = {int(h) % (1 << 20) for size in (1, 2) for h in ngrams(["a", "b", "a", "b"], size)}
    assert found.tolist() == sorted(expected)
    assert len(found) == 4  # a, b, ab, ba
    assert features([], 3, 16).tolist() == []


def test_buckets_are_used_evenly() -> None:
    counts = np.bincount(features([f"w{i}x" for i in range(4000)], 1, 8).tolist(), minlength=8)
    assert counts.tolist() == [1] * 8
    all_buckets = (ngrams([f"w{i}x" for i in range(4000)], 1) % np.uint64(8)).astype(int)
    counts = np.bincount(all_buckets, minlength=8)
    assert abs(counts - 500).max() < 5 * math.sqrt(500)
    assert pytest.approx(500) == counts.mean()
