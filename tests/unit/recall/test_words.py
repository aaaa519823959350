"""Words, n-grams and near copies: hand-worked values, and properties against slow definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.recall.words import agreement, duplicates, exact_words, features, is_ideograph, ngrams, signature, words

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


def grams(*numbers: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def test_places_agree_with_the_probability_of_the_jaccard_similarity() -> None:
    shared, own = range(60), range(1000, 1020)
    left, right = signature(grams(*shared), 4000), signature(grams(*shared, *own), 4000)
    assert agreement(left, right) == pytest.approx(60 / 80, abs=4 * (0.75 * 0.25 / 4000) ** 0.5)
    assert agreement(left, left) == 1
    assert agreement(signature(grams(), 8), left[:8]) == 0


def test_a_long_text_is_looked_at_in_blocks_and_none_is_left_out() -> None:
    whole = grams(*range(10_000))
    halves = [signature(part, 112) for part in (whole[:5000], whole[5000:])]
    assert signature(whole, 112).tolist() == np.minimum(*halves).tolist()


def test_the_first_of_several_copies_stays() -> None:
    one, other = signature(grams(*range(50)), 112), signature(grams(*range(100, 150)), 112)
    assert duplicates([one, other, one, other, one], bands=14, min_agreement=0.7) == {2: 0, 3: 1, 4: 0}


def test_texts_without_ngrams_are_nobodys_copies() -> None:
    nothing = signature(grams(), 112)
    assert duplicates([nothing, nothing], 14, 0.7) == {}


def test_a_chain_of_small_changes_does_not_make_two_texts_one() -> None:
    """Each text shares 8 in 9 with the next, and the first nothing with the last."""
    chain = [signature(grams(*range(start, start + 170)), 112) for start in range(0, 171, 10)]
    found = duplicates(chain, 14, 0.7)
    assert len(chain) - len(found) >= 4
    assert all(agreement(chain[copy], chain[first]) >= 0.7 for copy, first in found.items())


def test_candidates_are_as_frequent_as_the_formula_says() -> None:
    trials, hits = 300, 0
    for trial in range(trials):
        base = trial * 10_000
        left = signature(grams(*range(base, base + 70)), 112)
        right = signature(grams(*range(base, base + 56), *range(base + 500, base + 514)), 112)  # 56 of 84 are shared
        hits += bool(duplicates([left, right], 14, 0.0))
    expected = 1 - (1 - (56 / 84) ** 8) ** 14
    assert hits / trials == pytest.approx(expected, abs=4 * (expected * (1 - expected) / trials) ** 0.5)
